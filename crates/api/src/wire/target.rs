//! The target of a job: exactly one of the registered kinds. Each kind defines its own form; see `everytick_targets::Kind`.

use everytick_domain::{for_each_target_kind, invalid::Invalid, target::TargetSpec};
use everytick_targets::{WireForm, listed, object};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{FieldErrors, job::Allowed};

macro_rules! define {
    ($($variant:ident($spec:ident) $name:ident,)*) => {
        /// Where a job's runs are delivered: exactly one kind of target.
        #[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        #[schema(min_properties = 1, max_properties = 1, example = json!({"http": {"url": "https://example.org/hook"}}))]
        pub(crate) struct Target {
            $(
                #[serde(default, deserialize_with = "object::named", skip_serializing_if = "Option::is_none")]
                #[schema(nullable = false)]
                $name: Option<everytick_targets::$name::Wire>,
            )*
        }

        impl Target {
            pub(super) fn names_given(&self) -> Vec<&'static str> {
                [$(self.$name.is_some().then_some(stringify!($name)),)*].into_iter().flatten().collect()
            }

            /// The first kind that is given. Errors name fields of that kind.
            fn read_kind(self, old: Option<&TargetSpec>, errors: &mut Vec<Invalid>) -> Option<TargetSpec> {
                $(
                    if let Some(wire) = self.$name {
                        let old = match old {
                            Some(TargetSpec::$variant(old)) => Some(old),
                            _ => None,
                        };
                        let spec = wire.read(old, errors).map(TargetSpec::$variant);
                        for error in errors {
                            *error = error.clone().under(stringify!($name));
                        }
                        return spec;
                    }
                )*
                None
            }
        }

        /// The definition as answers show it, with credentials masked.
        impl From<&TargetSpec> for Target {
            fn from(spec: &TargetSpec) -> Self {
                match spec {
                    $(TargetSpec::$variant(spec) => Self { $name: Some(WireForm::show(spec)), ..Self::default() },)*
                }
            }
        }

        /// A kind of target.
        #[derive(ToSchema)]
        #[schema(as = TargetKind, rename_all = "snake_case")]
        #[expect(dead_code, reason = "only the OpenAPI document uses it")]
        pub(crate) enum Kind {
            $($variant,)*
        }
    };
}
for_each_target_kind!(define);

impl Target {
    /// `old` is the stored target, which provides masked values. Errors name fields of the job.
    pub(crate) fn read(
        self,
        old: Option<&TargetSpec>,
        allowed: Allowed<'_>,
        wrong: &mut FieldErrors,
    ) -> Option<TargetSpec> {
        let given = self.names_given();
        match given.len() {
            0 => wrong.add("target", format!("is empty; write one of {}", listed(str::to_owned))),
            1 => {}
            _ => wrong.add("target", several(&given)),
        }
        if given.len() != 1 {
            return None;
        }
        let mut errors = Vec::new();
        let spec = self.read_kind(old, &mut errors);
        wrong.extend(errors.into_iter().map(|error| error.under("target")));
        let spec = spec?;
        let forbidden = everytick_targets::forbidden(&spec, allowed.targets);
        if !forbidden.is_empty() {
            wrong.extend(allowed.elsewhere.judge(&spec, forbidden));
        }
        wrong.extend(everytick_targets::validate(&spec));
        // An edit of other fields keeps its URL. Its deliveries fail with the same message.
        if old.is_none_or(|old| old.host() != spec.host()) {
            wrong.extend(everytick_targets::refused_receiver(&spec, allowed.targets));
        }
        // Likewise an unchanged target.
        if old != Some(&spec) {
            wrong.extend(allowed.tenant.refused(&spec));
        }
        if allowed.targets.refuse_inline_secrets {
            wrong.extend(new_inline(&spec, old));
        }
        Some(spec)
    }

    /// The error for a job without a target.
    pub(crate) fn missing() -> String {
        format!("is missing; write one of {}", listed(|kind| format!("{{\"{kind}\": {{...}}}}")))
    }
}

/// The errors of credentials in the definition itself. An unchanged one was accepted before.
fn new_inline(spec: &TargetSpec, old: Option<&TargetSpec>) -> Vec<Invalid> {
    let known = old.map(inline).unwrap_or_default();
    let new = inline(spec).into_iter().filter(|found| !known.contains(found));
    let message = "holds a credential itself, which this server does not accept (--inline-secrets refuse); store it with \
                   `everytick secret set`, and write {{ secrets.NAME }}";
    new.map(|(field, _)| Invalid::new(field, message).under(spec.kind()).under("target")).collect()
}

/// The credentials in a definition that are not references to secrets: fields and values.
fn inline(spec: &TargetSpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    everytick_targets::inline_secrets(&mut spec.clone(), &mut |field, value| {
        found.push((field.to_owned(), value.clone()));
    });
    found
}

fn several(kinds: &[&str]) -> String {
    format!("has {}; write only one of them, and in a patch set the others to null", kinds.join(" and "))
}
