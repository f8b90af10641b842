//! Ids on the command line. Commands accept a whole id, or a beginning that no other id has. Tables show short ids.

use everytick_domain::ids::{IdPrefix, RunId};

/// The characters of a short id: the instant of a run and 3 digits of its hash. Runs that are due together have the same instant,
/// so fewer characters would often fit several runs.
const SHORT_CHARS: usize = 18;

/// Accepts an id, or the beginning of one, so that a typing error needs no request.
pub(crate) fn id(text: &str) -> Result<String, String> {
    text.parse::<IdPrefix>().map(|_| text.to_owned())
}

/// Whether a text is a whole id.
pub(crate) fn is_id(text: &str) -> bool {
    text.parse::<RunId>().is_ok()
}

/// Shortens the ids of a table so that they still differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortIds(usize);

impl ShortIds {
    pub(crate) fn of<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        let mut ids: Vec<&str> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        let shared =
            |pair: &[&str]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(one, other)| one == other).count();
        let differ = ids.windows(2).map(|pair| shared(pair) + 1).max().unwrap_or(0);
        Self(differ.max(SHORT_CHARS))
    }

    pub(crate) fn short<'a>(&self, id: &'a str) -> &'a str {
        let short = id.get(..self.0).unwrap_or(id);
        short.strip_suffix('-').and_then(|_| id.get(..self.0 + 1)).unwrap_or(short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_of_a_table_differ_and_are_beginnings() {
        let ids = [
            "01a1e327-d180-8de1-92e3-d388a74d8fe4",
            "01a1e327-d180-8de1-a2e3-d388a74d8fe4",
            "01a1e327-d180-8de0-92e3-d388a74d8fe4",
        ];
        let short = ShortIds::of(ids);
        assert_eq!(
            ids.map(|id| short.short(id)),
            ["01a1e327-d180-8de1-9", "01a1e327-d180-8de1-a", "01a1e327-d180-8de0-9"]
        );
        let alike = ["01a1e327-d180-8de1-92e3-d388a74d8fe4", "01a1e327-d180-8de1-93e3-d388a74d8fe4"];
        let short = ShortIds::of(alike);
        assert_eq!(alike.map(|id| short.short(id)), ["01a1e327-d180-8de1-92", "01a1e327-d180-8de1-93"]);
        let alone = ShortIds::of([ids[0]]);
        assert_eq!(alone.short(ids[0]), "01a1e327-d180-8de1");
        assert_eq!(alone.short("x"), "x");
        // A short id does not end with a hyphen.
        assert_eq!(ShortIds(19).short(ids[0]), "01a1e327-d180-8de1-9");
    }

    #[test]
    fn a_beginning_of_an_id_is_accepted_and_other_texts_are_not() {
        assert_eq!(id("01a1e327-d180").as_deref(), Ok("01a1e327-d180"));
        assert!(id("01a1").unwrap_err().contains("at least 8"));
        assert!(id("nightly").is_err());
    }
}
