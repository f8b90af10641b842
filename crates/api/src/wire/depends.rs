//! The `depends_on` of a job: its parents and how each must end.

use everytick_domain::flow::{DependsOn, When};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use utoipa::ToSchema;

use super::Name;

/// A job that must end before this one starts. A text is short for an object with only `job`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = DependsOn, example = json!({"job": "extract", "when": "succeeded"}))]
pub(crate) struct Parent {
    /// Name or id of the parent.
    #[schema(max_length = 128, example = "extract")]
    pub(crate) job: String,
    /// How the parent must end.
    #[serde(default)]
    #[schema(inline, default = "succeeded")]
    pub(crate) when: Ended,
}

/// A parent as a request writes it: an object, or only the name or id of the job.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the OpenAPI document uses it")]
pub(crate) enum DependsOnRequest {
    Parent(Parent),
    Job(Name),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    #[default]
    Succeeded,
    Failed,
    /// In any way, also cancelled or skipped.
    Finished,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParentObject {
    job: String,
    #[serde(default)]
    when: Ended,
}

impl<'de> Deserialize<'de> for Parent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Parent;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the name of a job, or an object")
            }
            fn visit_str<E>(self, job: &str) -> Result<Parent, E> {
                Ok(Parent { job: job.to_owned(), when: Ended::default() })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Parent, A::Error> {
                let ParentObject { job, when } = ParentObject::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Parent { job, when })
            }
        }
        from.deserialize_any(Reader)
    }
}

same_words! {
    Ended = When { Succeeded, Failed, Finished }
}

impl From<&DependsOn> for Parent {
    fn from(parent: &DependsOn) -> Self {
        Self { job: parent.job.clone(), when: parent.when.into() }
    }
}

impl From<Parent> for DependsOn {
    fn from(parent: Parent) -> Self {
        Self { job: parent.job, when: parent.when.into() }
    }
}
