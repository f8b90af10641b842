//! `ETag` and `If-Match`: an edit that names the version it is based on cannot overwrite another edit.
//! The tag identifies the definition, not the last run in the answer, so it must not be used for a 304.

use axum::{
    extract::FromRequestParts,
    http::{HeaderValue, header::IF_MATCH, request::Parts},
};
use everytick_domain::ids::Version;

use crate::error::{ApiError, Result};

/// The versions of a job or a calendar that an edit accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum IfMatch {
    /// Any version: no header, or `*`.
    Any,
    /// One of these versions. A tag that this server never sent is `None` and matches nothing.
    OneOf(Vec<Option<Version>>),
}

impl IfMatch {
    pub(crate) fn check(&self, has: Version) -> Result<()> {
        match self {
            Self::OneOf(tags) if !tags.contains(&Some(has)) => {
                Err(ApiError::VersionMismatch(format!("the current version is {has}, which If-Match does not contain")))
            }
            Self::Any | Self::OneOf(_) => Ok(()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let mut tags = Vec::new();
        for value in parts.headers.get_all(IF_MATCH) {
            let text = value.to_str().map_err(|_| wrong("a value that is not ASCII"))?;
            match read(text) {
                Some(Self::Any) => return Ok(Self::Any),
                Some(Self::OneOf(more)) => tags.extend(more),
                None => return Err(wrong(&format!("{text:?}"))),
            }
        }
        Ok(if tags.is_empty() { Self::Any } else { Self::OneOf(tags) })
    }
}

fn wrong(what: &str) -> ApiError {
    ApiError::malformed("If-Match", format!("{what} is not a tag; send the ETag, such as \"3\" with its quotes, or *"))
}

/// Accepts a weak tag as the strong one: proxies that compress weaken tags, and the version is the same.
fn read(text: &str) -> Option<IfMatch> {
    if text.trim() == "*" {
        return Some(IfMatch::Any);
    }
    let tags = text.split(',').map(|tag| {
        let tag = tag.trim();
        let inner = tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"')?.strip_suffix('"')?;
        let version = inner.parse().ok().filter(|version: &i64| version.to_string() == inner);
        (!inner.contains('"')).then(|| version.map(Version::from_raw))
    });
    tags.collect::<Option<Vec<_>>>().map(IfMatch::OneOf)
}

pub(crate) fn etag(version: Version) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("\"{version}\"")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_reads_strong_and_weak_tags_lists_and_star() {
        let version = |raw| Some(Version::from_raw(raw));
        for (text, read_as) in [
            ("*", Some(IfMatch::Any)),
            ("\"3\"", Some(IfMatch::OneOf(vec![version(3)]))),
            ("W/\"3\"", Some(IfMatch::OneOf(vec![version(3)]))),
            ("\"3\", \"4\"", Some(IfMatch::OneOf(vec![version(3), version(4)]))),
            ("\"abc\"", Some(IfMatch::OneOf(vec![None]))),
            ("\"03\"", Some(IfMatch::OneOf(vec![None]))),
            ("3", None),
            ("\"3", None),
            ("", None),
        ] {
            assert_eq!(read(text), read_as, "{text}");
        }
    }
}
