//! The texts of SQL statements. A marker such as `{{job}}` in a file stands for a fragment that several statements
//! share; only the statements with a marker pay for the replacement, once per process. In test builds a file can replace
//! a statement, so that `scripts/guards` can break one guard after another without a build for each.

/// The fragments of one database: marker and text.
pub(crate) type Fragments = fn() -> Vec<(&'static str, String)>;

/// The text of a file, with its fragments.
macro_rules! text_of {
    ($path:expr, $fragments:path) => {{
        static FULL: std::sync::LazyLock<String> =
            std::sync::LazyLock::new(|| $crate::statement::with_fragments(include_str!($path), $fragments));
        const FILE: &str = include_str!($path);
        if const { $crate::statement::has_marker(FILE.as_bytes()) } { FULL.as_str() } else { FILE }
    }};
}
pub(crate) use text_of;

pub(crate) const fn has_marker(text: &[u8]) -> bool {
    let mut at = 1;
    while at < text.len() {
        if text[at] == b'{' && text[at - 1] == b'{' {
            return true;
        }
        at += 1;
    }
    false
}

pub(crate) fn with_fragments(text: &str, fragments: Fragments) -> String {
    fragments().iter().fold(text.to_owned(), |text, (marker, fragment)| text.replace(marker, fragment))
}

/// The text of a statement with a name such as `postgres/claim`.
#[cfg(not(feature = "conformance"))]
pub(crate) const fn statement(_name: &str, text: &'static str, _: Fragments) -> &'static str {
    text
}

/// The text of a statement with a name such as `postgres/claim`: the file of that name in the folder
/// `EVERYTICK_TEST_SQL`, if it exists. If the folder has a file `uses`, the statement and the name of the thread, which is the
/// name of its test, are added to that file.
#[cfg(feature = "conformance")]
pub(crate) fn statement(name: &str, text: &'static str, fragments: Fragments) -> &'static str {
    use std::{collections::HashMap, io::Write as _, sync::Mutex};

    static REPLACED: Mutex<Option<HashMap<String, &'static str>>> = Mutex::new(None);
    let Some(folder) = std::env::var_os("EVERYTICK_TEST_SQL") else { return text };
    let mut replaced = REPLACED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let replaced = replaced.get_or_insert_default();
    let folder = std::path::Path::new(&folder);
    if let Ok(mut uses) = std::fs::OpenOptions::new().append(true).open(folder.join("uses")) {
        let thread = std::thread::current();
        // A use that is not written can only make the script report a guard that a test defends.
        let _ = uses.write_all(format!("{name} {}\n", thread.name().unwrap_or_default()).as_bytes());
    }
    if let Some(known) = replaced.get(name) {
        return known;
    }
    let path = folder.join(format!("{name}.sql"));
    let found = std::fs::read_to_string(path).map_or(text, |text| &*with_fragments(&text, fragments).leak());
    replaced.insert(name.to_owned(), found);
    found
}
