//! The texts of SQL statements. In test builds a file can replace a statement, so that `scripts/guards` can break one
//! guard after another without a build for each.

/// The text of a statement with a name such as `postgres/claim`.
#[cfg(not(feature = "conformance"))]
pub(crate) const fn statement(_name: &str, text: &'static str) -> &'static str {
    text
}

/// The text of a statement with a name such as `postgres/claim`: the file of that name in the folder
/// `EVERYTICK_TEST_SQL`, if it exists. If the folder has a file `uses`, the statement and the name of the thread, which is the
/// name of its test, are added to that file.
#[cfg(feature = "conformance")]
pub(crate) fn statement(name: &str, text: &'static str) -> &'static str {
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
    let found = std::fs::read_to_string(path).map_or(text, |text| &*text.leak());
    replaced.insert(name.to_owned(), found);
    found
}
