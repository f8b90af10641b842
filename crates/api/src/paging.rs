//! Pages: how many, and from where on. A cursor is opaque and carries its kind, so that one list's cursor is not taken for
//! another's.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use everytick_domain::{
    ids::{BackfillId, RunId},
    job::check_name,
};

use crate::params::Params;

pub(crate) const LIMIT_DEFAULT: usize = 100;
pub(crate) const LIMIT_MAX: usize = 1_000;

/// A place in a list.
pub(crate) trait Place: Sized {
    /// Tells the lists apart.
    const KIND: char;
    fn write(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

/// Jobs go by name.
impl Place for String {
    const KIND: char = 'j';
    fn write(&self) -> String {
        self.clone()
    }
    fn read(text: &str) -> Option<Self> {
        check_name(text).ok().map(|()| text.to_owned())
    }
}

impl Place for RunId {
    const KIND: char = 'r';
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Place for BackfillId {
    const KIND: char = 'b';
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// Audit rows go by number.
impl Place for i64 {
    const KIND: char = 'a';
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

pub(crate) fn cursor<P: Place>(place: &P) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}{}", P::KIND, place.write()))
}

/// `limit` and `cursor` of a list.
pub(crate) fn asked<P: Place>(params: &mut Params) -> (usize, Option<P>) {
    let limit = params.number("limit", 1..=LIMIT_MAX, LIMIT_DEFAULT);
    let place = params.one("cursor").and_then(|text| {
        let place = place(&text);
        if place.is_none() {
            params.refuse("cursor", "is not a cursor of this list; give back the next_cursor of its last page");
        }
        place
    });
    (limit, place)
}

fn place<P: Place>(text: &str) -> Option<P> {
    let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    P::read(decoded.strip_prefix(P::KIND)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_the_place_it_was_made_of_and_as_no_other_kind() {
        let text = cursor(&"nightly".to_owned());
        assert_eq!(place::<String>(&text).as_deref(), Some("nightly"));
        assert_eq!(place::<i64>(&text), None);
        assert_eq!(place::<RunId>(&text), None);
        assert_eq!(place::<i64>(&cursor(&7_i64)), Some(7));
    }
}
