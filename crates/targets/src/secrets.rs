//! The secrets of one delivery: fills references in, and removes the values from outputs.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use everytick_domain::{
    ids::Version,
    secret::{self, Encoding, Forms, Scrubber, may_refer},
};
use zeroize::Zeroizing;

use crate::tail::Tail;

/// The values of one secret.
#[derive(Clone)]
pub struct SecretValue {
    pub version: Version,
    pub current: Zeroizing<Vec<u8>>,
    /// The value before a rotation, while deliveries are also signed with it.
    pub previous: Option<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretValue").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The secrets that one delivery may use. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Option<Arc<Known>>);

#[derive(Debug)]
struct Known {
    values: BTreeMap<String, SecretValue>,
    /// The secrets to which the payload of the definition refers. A run may have another payload. Its author may have no permission
    /// to choose secrets, or it may contain the output of another run.
    in_payload: BTreeSet<String>,
    forms: Arc<Forms>,
}

impl Secrets {
    #[must_use]
    pub fn new(values: BTreeMap<String, SecretValue>, in_payload: BTreeSet<String>) -> Self {
        let current = values.values().map(|value| value.current.as_slice());
        let previous = values.values().filter_map(|value| value.previous.as_ref().map(|value| value.as_slice()));
        let forms = Arc::new(Forms::of(current.chain(previous)));
        Self(Some(Arc::new(Known { values, in_payload, forms })))
    }

    /// The texts that outputs may not contain; `None` if there are none.
    #[must_use]
    pub fn forms(&self) -> Option<&Arc<Forms>> {
        self.0.as_deref().map(|known| &known.forms).filter(|forms| !forms.is_empty())
    }

    pub(crate) fn value(&self, name: &str) -> Result<&SecretValue, String> {
        let found = self.0.as_deref().and_then(|known| known.values.get(name));
        found.ok_or_else(|| format!("the secret {name:?} is not available to this delivery"))
    }

    /// The text with the values of its references.
    pub(crate) fn fill<'t>(&self, text: &'t str, encoding: Encoding) -> Result<Cow<'t, [u8]>, String> {
        if self.0.is_none() || !may_refer(text) {
            return Ok(Cow::Borrowed(text.as_bytes()));
        }
        let mut filled = Vec::with_capacity(text.len());
        secret::fill(text, encoding, &mut filled, |name| self.value(name).map(|value| Some(value.current.as_slice())))?;
        Ok(Cow::Owned(filled))
    }

    pub(crate) fn fill_payload<'t>(&self, payload: &'t str) -> Result<Cow<'t, [u8]>, String> {
        let Some(known) = self.0.as_deref().filter(|known| !known.in_payload.is_empty() && may_refer(payload)) else {
            return Ok(Cow::Borrowed(payload.as_bytes()));
        };
        let mut filled = Vec::with_capacity(payload.len());
        secret::fill(payload, Encoding::Json, &mut filled, |name| match known.in_payload.contains(name) {
            true => self.value(name).map(|value| Some(value.current.as_slice())),
            false => Ok(None),
        })?;
        Ok(Cow::Owned(filled))
    }

    pub(crate) fn tail(&self) -> ScrubbedTail {
        ScrubbedTail { scrubber: self.scrubber(), tail: Tail::default() }
    }

    pub(crate) fn scrubber(&self) -> Option<Scrubber> {
        self.forms().map(|forms| Scrubber::new(Arc::clone(forms)))
    }
}

/// The end of one stream, without secrets. They are removed before the stream is cut: a part of a value would not be
/// recognized.
pub(crate) struct ScrubbedTail {
    scrubber: Option<Scrubber>,
    tail: Tail,
}

impl ScrubbedTail {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        match &mut self.scrubber {
            Some(scrubber) => self.tail.push(&scrubber.push(chunk)),
            None => self.tail.push(chunk),
        }
    }

    pub(crate) fn into_text(mut self) -> Option<String> {
        if let Some(mut scrubber) = self.scrubber.take() {
            self.tail.push(&scrubber.finish());
        }
        self.tail.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(in_payload: &[&str]) -> Secrets {
        let value = |text: &str| SecretValue {
            version: Version::from_raw(1),
            current: Zeroizing::new(text.as_bytes().to_vec()),
            previous: None,
        };
        let values =
            [("api", "hunter2 \"&\" 2"), ("db", "password123")].map(|(name, text)| (name.to_owned(), value(text)));
        Secrets::new(values.into(), in_payload.iter().map(|&name| name.to_owned()).collect())
    }

    fn text(filled: Result<Cow<'_, [u8]>, String>) -> String {
        String::from_utf8(filled.unwrap().into_owned()).unwrap()
    }

    #[test]
    fn values_are_encoded_for_the_field_that_refers_to_them() {
        let secrets = secrets(&[]);
        assert_eq!(text(secrets.fill("Bearer {{ secrets.db }}", Encoding::Plain)), "Bearer password123");
        let url = secrets.fill("https://a/?k={{ secrets.api }}", Encoding::Percent);
        assert_eq!(text(url), "https://a/?k=hunter2%20%22%26%22%202");
        assert!(secrets.fill("{{ secrets.other }}", Encoding::Plain).unwrap_err().contains("\"other\""));
        assert_eq!(text(Secrets::default().fill("{{ secrets.db }}", Encoding::Plain)), "{{ secrets.db }}");
    }

    #[test]
    fn a_payload_gets_only_the_secrets_that_its_definition_names() {
        let payload = r#"{"a":"{{ secrets.api }}","b":"{{ secrets.db }}"}"#;
        let filled = text(secrets(&["api"]).fill_payload(payload));
        assert_eq!(filled, r#"{"a":"hunter2 \"&\" 2","b":"{{ secrets.db }}"}"#);
        assert_eq!(text(secrets(&[]).fill_payload(payload)), payload);
    }

    #[test]
    fn a_tail_has_no_value_wherever_it_is_cut() {
        let secrets = secrets(&[]);
        let mut tail = secrets.tail();
        for chunk in ["a pass", "word", "123 b password12"] {
            tail.push(chunk.as_bytes());
        }
        assert_eq!(tail.into_text().as_deref(), Some("a ******** b ********"));
        assert!(!format!("{secrets:?}").contains("password123"));
    }
}
