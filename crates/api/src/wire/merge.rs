//! JSON merge patch (RFC 7396) on text: everything that the patch does not name keeps its bytes, including numbers and order.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The members of an object, each as its original text.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members(Vec::new());
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    members.set(key, value);
                }
                Ok(members)
            }
        }
        from.deserialize_map(Reader)
    }
}

impl Members {
    fn of(value: &RawValue) -> Option<Self> {
        serde_json::from_str(value.get()).ok()
    }
    fn set(&mut self, key: String, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
    }
}

/// Applies `patch` to `target`. The caller has checked that both are JSON of bounded depth.
pub(crate) fn merge(target: &RawValue, patch: &RawValue) -> serde_json::Result<Box<RawValue>> {
    let Some(changes) = Members::of(patch) else { return Ok(patch.to_owned()) };
    let mut merged = Members::of(target).unwrap_or(Members(Vec::new()));
    for (key, change) in changes.0 {
        if change.get() == "null" {
            merged.0.retain(|(known, _)| *known != key);
            continue;
        }
        let old = merged.0.iter().find(|(known, _)| *known == key).map(|(_, old)| old.clone());
        let new = match old {
            Some(old) => merge(&old, &change)?,
            None => merge(RawValue::NULL, &change)?,
        };
        merged.set(key, new);
    }
    let mut text = String::from("{");
    for (index, (key, value)) in merged.0.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&serde_json::to_string(key)?);
        text.push(':');
        text.push_str(value.get());
    }
    text.push('}');
    RawValue::from_string(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 7396, appendix A.
    #[test]
    fn merges_as_the_rfc_does() {
        for (target, patch, merged) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            (r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            (r#"{}"#, r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
            (r#"{"n":1.50, "z":1,"a":2}"#, r#"{"b":0.10}"#, r#"{"n":1.50,"z":1,"a":2,"b":0.10}"#),
        ] {
            let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
            assert_eq!(merge(&raw(target), &raw(patch)).unwrap().get(), merged, "{target} {patch}");
        }
    }
}
