//! Checks that the suite runs every rule.

/// A rule that its file does not list, or a file that the suite does not name, would never run.
#[test]
fn every_rule_of_the_suite_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance");
    let suite = std::fs::read_to_string(format!("{folder}/mod.rs")).unwrap();
    let mut rules = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let topic = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        if topic == "server" {
            continue;
        }
        for line in text.lines() {
            let Some(rule) = line.strip_prefix("pub async fn ") else { continue };
            let (name, _) = rule.split_once('(').unwrap();
            assert!(text.contains(&format!("            {name},\n")), "{topic}.rs does not list {name}");
            assert!(suite.contains(&format!("conformance_{topic}!")), "the suite does not run {topic}.rs");
            rules += 1;
        }
    }
    assert!(rules >= 459, "{rules} rules");
}
