//! Paging: `limit` and `cursor`. A cursor is opaque and contains the kind of its list and its tenant, so that a list refuses the
//! cursor of another list, and of another tenant.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use everytick_domain::{
    ids::{BackfillId, RunId, TenantId, TokenId},
    job::check_name,
};

use crate::params::Params;

pub(crate) const LIMIT_DEFAULT: usize = 100;
pub(crate) const LIMIT_MAX: usize = 1_000;

/// A position in a list.
pub(crate) trait Position: Sized {
    /// Identifies the kind of list.
    const KIND: char;
    fn write(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

/// Jobs, calendars and queues are listed by name.
impl Position for String {
    const KIND: char = 'j';
    fn write(&self) -> String {
        self.clone()
    }
    fn read(text: &str) -> Option<Self> {
        check_name(text).ok().map(|()| text.to_owned())
    }
}

impl Position for RunId {
    const KIND: char = 'r';
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// A flow in a list of flows. Its id is a run's id, but a list of runs refuses its cursor.
pub(crate) struct FlowPosition(pub(crate) RunId);

impl Position for FlowPosition {
    const KIND: char = 'f';
    fn write(&self) -> String {
        self.0.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl Position for BackfillId {
    const KIND: char = 'b';
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Position for TokenId {
    const KIND: char = 't';
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// Audit rows are listed by number.
impl Position for i64 {
    const KIND: char = 'a';
    fn write(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

pub(crate) fn cursor<P: Position>(position: &P, tenant: TenantId) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}{}:{}", P::KIND, tenant.raw(), position.write()))
}

/// Reads `limit` and `cursor` of a list.
pub(crate) fn read<P: Position>(params: &mut Params, tenant: TenantId) -> (usize, Option<P>) {
    let limit = params.number("limit", 1..=LIMIT_MAX, LIMIT_DEFAULT);
    let position = params.one("cursor").and_then(|text| {
        let position = position(&text, tenant);
        if position.is_none() {
            params.refuse("cursor", "is not a cursor of this list; send the next_cursor of the previous page");
        }
        position
    });
    (limit, position)
}

fn position<P: Position>(text: &str, tenant: TenantId) -> Option<P> {
    let decoded = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (owner, position) = decoded.strip_prefix(P::KIND)?.split_once(':')?;
    P::read(position).filter(|_| owner == tenant.raw().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_decodes_to_its_position_and_other_lists_and_tenants_refuse_it() {
        let own = TenantId::DEFAULT;
        let text = cursor(&"nightly".to_owned(), own);
        assert_eq!(position::<String>(&text, own).as_deref(), Some("nightly"));
        assert_eq!(position::<String>(&text, TenantId::from_raw(2)), None);
        assert_eq!(position::<String>(&text, TenantId::from_raw(11)), None);
        assert_eq!(position::<i64>(&text, own), None);
        assert_eq!(position::<RunId>(&text, own), None);
        assert_eq!(position::<i64>(&cursor(&7_i64, own), own), Some(7));
    }
}
