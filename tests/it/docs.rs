//! The documents: the commands of docs/ run, links lead to files, and the reference pages name what the code has. The commands of
//! README.md are run by `readme`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use everytick_domain::{
    run::{CauseKind, SkipReason, State},
    target::TargetKind,
};
use serde_json::Value;

use crate::support::{Server, everytick};

/// Commands that build or start the server; the tests start their own.
const SET_UP: [&str; 3] = ["git clone", "cargo run --release -- serve", "export PATH="];

/// A path of the repository.
fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files with this extension in a folder and its subfolders.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![root(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|suffix| suffix == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The lines of all code blocks of a page that are marked with this language.
fn block_lines<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let (mut block, mut lines) = (None, Vec::new());
    for line in page.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(_), Some(_)) => block = None,
            (Some(word), None) => block = Some(word),
            (None, Some(word)) if word == language => lines.push(line),
            (None, _) => {}
        }
    }
    lines
}

/// The relative targets of all links of a page, without their anchors.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let paths = targets.filter(|target| !target.contains("://")).filter_map(|target| target.split('#').next());
    paths.filter(|path| !path.is_empty()).collect()
}

#[test]
fn every_command_of_the_docs_succeeds() {
    let mut pages = 0;
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("key").display().to_string();
    everytick(&["secret", "keygen", "--file", &key]).ok();
    for path in files("docs", "md") {
        let page = fs::read_to_string(&path).unwrap();
        let is_set_up = |line: &str| SET_UP.iter().any(|begin| line.starts_with(begin));
        let commands: Vec<&str> = block_lines(&page, "sh").into_iter().filter(|line| !is_set_up(line)).collect();
        if commands.is_empty() {
            continue;
        }
        // Shown if the page fails.
        println!("{}", path.display());
        let server = Server::builder().flags(&["--enable-shell", "--secret-key-files", &key]).start();
        server.script(&commands.join("\n"));
        pages += 1;
    }
    assert!(pages >= 9, "only {pages} pages have commands");
}

#[test]
fn every_link_of_the_docs_leads_to_a_file() {
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(root);
    let mut count = 0;
    for path in files("docs", "md").into_iter().chain(top) {
        let page = fs::read_to_string(&path).unwrap();
        for link in links(&page) {
            let target = path.parent().unwrap().join(link);
            assert!(target.exists(), "{} links to {link}, which does not exist", path.display());
            count += 1;
        }
    }
    assert!(count >= 50, "only {count} links");
}

#[test]
fn every_page_is_linked_from_its_index() {
    let listed = |index: &str| -> BTreeSet<PathBuf> {
        let folder = root(index).parent().unwrap().to_owned();
        links(&read(index)).into_iter().filter_map(|link| folder.join(link).canonicalize().ok()).collect()
    };
    let (user, design) = (listed("docs/README.md"), listed("docs/design/README.md"));
    for path in files("docs", "md") {
        let page = path.canonicalize().unwrap();
        let is_index = page == root("docs/README.md").canonicalize().unwrap();
        assert!(is_index || user.contains(&page) || design.contains(&page), "{} is in no index", path.display());
    }
}

#[test]
fn the_readme_has_at_most_150_lines() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[test]
fn the_reference_names_every_flag_of_serve_and_no_other() {
    let page = read("docs/reference/settings.md");
    let help = everytick(&["serve", "--help"]).ok();
    let mut flags = BTreeSet::new();
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        let words = line.split([' ', '[', '=', ',']);
        flags.extend(words.filter(|word| word.starts_with("--")).take(1).filter(|flag| *flag != "--help"));
    }
    assert!(flags.len() >= 20, "{flags:?}");
    for flag in &flags {
        let named = [format!("| `{flag}`"), format!("| `{flag} ")];
        assert!(named.iter().any(|row| page.contains(row)), "{flag} is not in docs/reference/settings.md");
    }
    for row in page.split("| `--").skip(1) {
        let flag = format!("--{}", row.split([' ', '`']).next().unwrap());
        assert!(flags.contains(flag.as_str()), "{flag} of docs/reference/settings.md is not a flag of serve");
    }
}

#[test]
fn the_reference_and_the_help_texts_name_every_metric() {
    let page = read("docs/reference/metrics.md");
    let described: String = read("src/telemetry.rs").split_whitespace().collect();
    let mut names = BTreeSet::new();
    for path in [files("crates/engine/src", "rs"), files("crates/api/src/server", "rs")].concat() {
        let text = fs::read_to_string(&path).unwrap();
        let metric =
            |word: &&str| word.starts_with("everytick_") && word.bytes().all(|b| b == b'_' || b.is_ascii_lowercase());
        names.extend(text.split('"').filter(metric).map(str::to_owned));
    }
    assert!(names.len() >= 15, "{names:?}");
    for name in &names {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/reference/metrics.md");
        let has_help = ["counter", "gauge", "histogram"]
            .iter()
            .any(|kind| described.contains(&format!("describe_{kind}!(\"{name}\"")));
        assert!(has_help, "{name} has no describe_ call in src/telemetry.rs");
    }
}

#[test]
fn the_reference_names_every_state_cause_and_skip_reason() {
    let page = read("docs/reference/runs.md");
    let words = State::ALL.iter().map(|state| state.word()).chain(CauseKind::ALL.iter().map(|cause| cause.word()));
    for word in words {
        assert!(page.contains(&format!("`{word}`")), "{word} is not in docs/reference/runs.md");
    }
    // The other tables also have `parent` and `error`, so the table of skip reasons is searched alone.
    let reasons = page.split("## ").find(|section| section.starts_with("Skip reasons")).unwrap();
    for word in SkipReason::ALL.iter().map(|reason| reason.word()) {
        assert!(reasons.contains(&format!("\n| `{word}` |")), "{word} has no row in docs/reference/runs.md");
    }
}

/// The name in a reference to a schema.
fn schema_name(reference: &Value) -> &str {
    reference["$ref"].as_str().and_then(|path| path.rsplit('/').next()).unwrap()
}

/// `UPDATE_DOCS=1` writes the table.
#[test]
fn the_table_of_targets_is_that_of_the_registry() {
    let (page, table) = (read("docs/reference/jobs.md"), everytick_targets::reference_table());
    let begin = page.find("## Targets\n\n").unwrap() + "## Targets\n\n".len();
    let end = begin + page[begin..].find("\n\n").unwrap() + 1;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root("docs/reference/jobs.md"), format!("{}{table}{}", &page[..begin], &page[end..])).unwrap();
    } else {
        assert_eq!(page[begin..end], table, "`UPDATE_DOCS=1 cargo test --test it docs` writes the table");
    }
}

#[test]
fn the_reference_names_every_field_of_a_job_and_its_example_is_accepted() {
    let server = Server::builder().flags(&["--enable-shell"]).start();
    let page = read("docs/reference/jobs.md");
    fs::write(server.dir().join("job.json"), block_lines(&page, "json").join("\n")).unwrap();
    server.everytick(&["job", "create", "-f", "job.json"]).ok();

    let document: Value =
        serde_json::from_str(&server.script(&format!("curl -fsS {}/openapi.json", server.url()))).unwrap();
    let pages = page + &read("docs/reference/schedules.md");
    let schemas = &document["components"]["schemas"];
    let kinds: Vec<&str> = schemas["Target"]["properties"].as_object().unwrap().values().map(schema_name).collect();
    assert_eq!(kinds.len(), TargetKind::ALL.len());
    for schema in kinds.into_iter().chain(["JobDefinition", "Schedule", "Misfire", "Retry"]) {
        let fields = schemas[schema]["properties"].as_object();
        for field in fields.unwrap_or_else(|| panic!("the API has no schema {schema}")).keys() {
            assert!(pages.contains(&format!("`{field}`")), "{schema}.{field} is in neither jobs.md nor schedules.md");
        }
    }
}
