//! Checks that the suite runs every rule.

/// A rule that is not listed in the macro would never run.
#[test]
fn every_rule_of_the_suite_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance");
    let listed = std::fs::read_to_string(format!("{folder}/mod.rs")).unwrap();
    let mut rules = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.file_name().is_some_and(|name| name == "mod.rs" || name == "server.rs") {
            continue;
        }
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let Some(rule) = line.strip_prefix("pub async fn ") else { continue };
            let (name, _) = rule.split_once('(').unwrap();
            assert!(listed.contains(&format!(" {name},\n")), "{name} of {} is not in the suite", path.display());
            rules += 1;
        }
    }
    assert!(rules >= 100, "{rules} rules");
}
