//! Where a definition may refer to secrets, and whether it may use those that it names.
//!
//! | field | references |
//! |---|---|
//! | header values, environment variables | anywhere in the text |
//! | URL | in the query only: the host decides where a secret may be sent |
//! | `secret`, `client_cert` | the whole text |
//! | strings of the payload | with `payload_secrets`, in http and shell jobs |
//! | everything else | refused: the reference would be sent, stored or shown unchanged |

use std::collections::BTreeSet;

use super::{Piece, REFERENCES_MAX, SecretKind, SecretRules, may_refer, only_reference, pieces};
use crate::{
    invalid::Invalid,
    job::JobSpec,
    target::{TargetKind, TargetSpec},
};

/// Which references a text of a definition may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Anywhere,
    /// The text is a URL.
    Query,
    /// One reference that is the whole text.
    Whole,
    Nowhere,
}

/// A text of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<'a> {
    pub field: &'static str,
    /// The name of the entry, if the field is a map.
    pub entry: Option<&'a str>,
    pub text: &'a str,
    pub place: Place,
}

impl Text<'_> {
    /// The path of the field below the target.
    #[must_use]
    pub fn path(&self) -> String {
        self.entry.map_or_else(|| self.field.to_owned(), |entry| format!("{}.{entry}", self.field))
    }
}

/// A reference in a definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    pub name: String,
    /// The path of the field as the user writes it.
    pub field: String,
}

/// The field of references in the payload.
pub const PAYLOAD_FIELD: &str = "payload";

const PLACES: &str = "references are allowed in header values, in the query of the URL, in secret and client_cert, in the \
                      variables of a command, and with payload_secrets in the payload";

/// The references of a definition, or the errors in them.
pub fn uses(spec: &JobSpec) -> Result<Vec<Use>, Vec<Invalid>> {
    let mut found = Found::default();
    let kind = spec.target.kind();
    spec.target.texts(&mut |text| {
        if may_refer(text.text) || text.entry.is_some_and(may_refer) {
            found.text(&format!("target.{kind}.{}", text.path()), &text);
        }
    });
    if let Some(payload) = spec.payload.as_deref().filter(|payload| may_refer(payload)) {
        found.payload(spec, payload);
    }
    for (key, value) in spec.labels.iter().filter(|(key, value)| may_refer(key) || may_refer(value)) {
        found.nowhere(&format!("labels.{key}"), value);
    }
    if spec.payload_secrets && SecretKind::of(TargetKind::of(&spec.target)).is_none() {
        let why = format!("needs an http or shell target; workers of {kind} jobs receive the payload unchanged");
        found.wrong.push(Invalid::new("payload_secrets", why));
    }
    if found.uses.len() > REFERENCES_MAX {
        let why = format!("has {} references to secrets; at most {REFERENCES_MAX} are allowed", found.uses.len());
        found.wrong.push(Invalid::new("", why));
    }
    if found.wrong.is_empty() { Ok(found.uses) } else { Err(found.wrong) }
}

/// The names of the secrets that a definition uses, without duplicates. Empty if its references are wrong.
#[must_use]
pub fn names(spec: &JobSpec) -> BTreeSet<String> {
    uses(spec).unwrap_or_default().into_iter().map(|found| found.name).collect()
}

/// Checks that a definition may use the secrets that it names. `known` has the rules of those that exist.
#[must_use]
pub fn check_uses(target: &TargetSpec, uses: &[Use], known: &[SecretRules]) -> Vec<Invalid> {
    let host = target.host();
    let kind = SecretKind::of(TargetKind::of(target));
    let check = |used: &Use| {
        let name = &used.name;
        let Some(rules) = known.iter().find(|rules| rules.name == *name) else {
            return Err(format!("the secret {name:?} does not exist; create it with `everytick secret set {name}`"));
        };
        // `uses` has refused references of other kinds.
        kind.map_or(Ok(()), |kind| rules.check(kind, host.as_ref()))
    };
    uses.iter().filter_map(|used| check(used).err().map(|why| Invalid::new(&used.field, why))).collect()
}

#[derive(Default)]
struct Found {
    uses: Vec<Use>,
    wrong: Vec<Invalid>,
}

impl Found {
    fn text(&mut self, field: &str, text: &Text<'_>) {
        if text.entry.is_some_and(may_refer) {
            self.nowhere(field, text.entry.unwrap_or_default());
        }
        match text.place {
            Place::Anywhere => self.anywhere(field, text.text),
            Place::Query => {
                let (rest, fragment) = text.text.split_once('#').unwrap_or((text.text, ""));
                let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
                self.nowhere(field, path);
                self.anywhere(field, query);
                self.nowhere(field, fragment);
            }
            Place::Whole => match only_reference(text.text) {
                Some(name) => self.uses.push(Use { name: name.to_owned(), field: field.to_owned() }),
                None => {
                    let why =
                        "has a reference to a secret beside other text; write {{ secrets.NAME }} and nothing else";
                    self.wrong.push(Invalid::new(field, why));
                }
            },
            Place::Nowhere => self.nowhere(field, text.text),
        }
    }

    fn payload(&mut self, spec: &JobSpec, payload: &str) {
        if spec.payload_secrets {
            self.anywhere(PAYLOAD_FIELD, payload);
        } else if refers(payload) {
            let why = match SecretKind::of(TargetKind::of(&spec.target)) {
                Some(_) => "refers to a secret; set payload_secrets to true to fill it in",
                None => {
                    "refers to a secret, but workers receive the payload unchanged; give the secret to the worker instead"
                }
            };
            self.wrong.push(Invalid::new("payload", why));
        }
    }

    fn anywhere(&mut self, field: &str, text: &str) {
        match pieces(text) {
            Ok(pieces) => self.uses.extend(pieces.into_iter().filter_map(|piece| match piece {
                Piece::Secret(name) => Some(Use { name: name.to_owned(), field: field.to_owned() }),
                Piece::Text(_) => None,
            })),
            Err(why) => self.wrong.push(Invalid::new(field, why)),
        }
    }

    fn nowhere(&mut self, field: &str, text: &str) {
        if refers(text) {
            self.wrong.push(Invalid::new(field, format!("may not refer to a secret here; {PLACES}")));
        }
    }
}

/// Whether a text has a reference, valid or not.
fn refers(text: &str) -> bool {
    pieces(text).map_or(true, |pieces| pieces.iter().any(|piece| matches!(piece, Piece::Secret(_))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::tests::spec,
        target::{Command, HttpTarget, QueueTarget, ShellTarget},
        time::Span,
    };

    const REF: &str = "{{ secrets.api }}";

    fn http(change: impl FnOnce(&mut HttpTarget)) -> JobSpec {
        let mut http = HttpTarget::post("https://api.example.org/hook".into());
        change(&mut http);
        JobSpec { target: TargetSpec::Http(http), payload: None, ..spec(Span::seconds(10)) }
    }

    fn shell(change: impl FnOnce(&mut ShellTarget)) -> JobSpec {
        let mut shell = ShellTarget { command: Command::Script("true".into()), env: [].into(), workdir: None };
        change(&mut shell);
        JobSpec { target: TargetSpec::Shell(shell), ..http(|_| {}) }
    }

    fn entry(value: &str) -> std::collections::BTreeMap<String, String> {
        [("A".to_owned(), value.to_owned())].into()
    }

    fn fields(spec: &JobSpec) -> Vec<(String, String)> {
        uses(spec).unwrap().into_iter().map(|found| (found.field, found.name)).collect()
    }

    #[test]
    fn references_are_allowed_where_only_the_receiver_gets_the_value() {
        let payload = |payload: &str| JobSpec { payload: Some(payload.into()), payload_secrets: true, ..http(|_| {}) };
        for (spec, field) in [
            (http(|http| http.headers = entry("Bearer {{ secrets.api }}")), "target.http.headers.A"),
            (http(|http| http.url += "?a=1&key={{ secrets.api }}#f"), "target.http.url"),
            (http(|http| http.secret = Some(REF.into())), "target.http.secret"),
            (http(|http| http.client_cert = Some(REF.into())), "target.http.client_cert"),
            (shell(|shell| shell.env = entry("x{{secrets.api}}y")), "target.shell.env.A"),
            (payload(r#"{"a":["{{ secrets.api }}"]}"#), "payload"),
            (
                JobSpec { payload_secrets: true, payload: Some(r#""{{ secrets.api }}""#.into()), ..shell(|_| {}) },
                "payload",
            ),
        ] {
            assert_eq!(fields(&spec), [(field.to_owned(), "api".to_owned())]);
            assert_eq!(names(&spec), BTreeSet::from(["api".to_owned()]));
        }
        assert_eq!(fields(&http(|_| {})), []);
        assert_eq!(fields(&payload(r#""{{ flow }} {{ other }}""#)), []);
    }

    #[test]
    fn references_elsewhere_are_refused() {
        let queue = TargetSpec::Queue(QueueTarget { name: "q".into() });
        for (spec, field) in [
            (http(|http| http.url = "https://{{ secrets.api }}/".into()), "target.http.url"),
            (http(|http| http.url = "https://a.example/{{ secrets.api }}".into()), "target.http.url"),
            (http(|http| http.url += "?a#{{ secrets.api }}"), "target.http.url"),
            (http(|http| http.url += "#?{{ secrets.api }}"), "target.http.url"),
            (http(|http| http.secret = Some("whsec_{{ secrets.api }}".into())), "target.http.secret"),
            (http(|http| http.client_cert = Some("x {{ secrets.api }}".into())), "target.http.client_cert"),
            (
                http(|http| http.headers = [(REF.to_owned(), "v".to_owned())].into()),
                "target.http.headers.{{ secrets.api }}",
            ),
            (http(|http| http.headers = entry("{{ secrets.a b }}")), "target.http.headers.A"),
            (shell(|shell| shell.command = Command::Script(format!("echo {REF}"))), "target.shell.command"),
            (shell(|shell| shell.command = Command::Argv(vec!["a".into(), REF.into()])), "target.shell.command"),
            (shell(|shell| shell.workdir = Some(format!("/{REF}"))), "target.shell.workdir"),
            (JobSpec { payload: Some(format!("\"{REF}\"")), ..http(|_| {}) }, "payload"),
            (JobSpec { payload: Some(format!("\"{REF}\"")), target: queue.clone(), ..http(|_| {}) }, "payload"),
            (JobSpec { payload_secrets: true, target: queue, ..http(|_| {}) }, "payload_secrets"),
            (JobSpec { labels: entry(REF), ..http(|_| {}) }, "labels.A"),
        ] {
            let wrong = uses(&spec).unwrap_err();
            assert_eq!(wrong.iter().map(|wrong| wrong.field.as_str()).collect::<Vec<_>>(), [field], "{wrong:?}");
            assert!(names(&spec).is_empty());
        }
    }

    #[test]
    fn the_number_of_references_is_limited() {
        let many = |count| http(|http| http.headers = entry(&REF.repeat(count)));
        assert_eq!(uses(&many(REFERENCES_MAX)).unwrap().len(), REFERENCES_MAX);
        assert!(uses(&many(REFERENCES_MAX + 1)).unwrap_err()[0].message.contains("at most 100"));
    }

    #[test]
    fn a_definition_uses_only_secrets_that_exist_for_its_kind_and_host() {
        let rules = |hosts: &[&str], kinds: &[SecretKind]| {
            let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
            vec![SecretRules { name: "api".into(), hosts, kinds: kinds.to_vec() }]
        };
        let signed = http(|http| http.headers = entry(REF));
        let command = shell(|shell| shell.env = entry(REF));
        let check = |spec: &JobSpec, known: &[SecretRules]| {
            let found = check_uses(&spec.target, &uses(spec).unwrap(), known);
            found.into_iter().map(|wrong| wrong.to_string()).collect::<Vec<_>>().join("; ")
        };
        let both = [SecretKind::Http, SecretKind::Shell];
        assert_eq!(check(&signed, &rules(&["api.example.org"], &both)), "");
        assert_eq!(check(&command, &rules(&["api.example.org"], &both)), "", "commands have no host");
        for (spec, known, message) in [
            (&signed, vec![], "target.http.headers.A: the secret \"api\" does not exist; create it with"),
            (&signed, rules(&["other.example"], &both), "may not be sent to api.example.org:443; its hosts are other"),
            (&signed, rules(&["api.example.org"], &[SecretKind::Shell]), "is not for http jobs; its kinds are shell"),
            (
                &command,
                rules(&["api.example.org"], &[SecretKind::Http]),
                "target.shell.env.A: the secret \"api\" is not",
            ),
        ] {
            let found = check(spec, &known);
            assert!(found.contains(message), "{found}");
        }
        assert_eq!(check(&http(|_| {}), &[]), "");
    }
}
