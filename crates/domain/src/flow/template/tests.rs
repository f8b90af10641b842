use super::{fill::Bounded, *};
use crate::{
    flow::{DependsOn, When},
    job::PAYLOAD_BYTES_MAX,
    plan::tests::spec,
    time::{DbTime, Span},
};

const OUTPUT: &str = r#"{"rows": 12, "files": [{"name": "a.csv"}], "note": "done", "none": null}"#;

fn rendered(payload: &str) -> Result<Option<String>, String> {
    let run = RunId::floor(DbTime::EPOCH);
    let parent = |output| Ancestor { run, state: State::Succeeded, output, error: None };
    let broken = Ancestor { run, state: State::Failed, output: None, error: Some("exit 1: \"no\"") };
    let parents = BTreeMap::from([
        ("extract", parent(Some(OUTPUT))),
        ("v1.2", parent(Some(r#"{"ok": true}"#))),
        ("plain", parent(Some("not JSON"))),
        ("mute", parent(None)),
        ("broken", broken),
    ]);
    render(Some(payload), run, &parents)
}

#[test]
fn a_lone_placeholder_keeps_its_type_and_one_inside_text_becomes_text() {
    for (payload, filled) in [
        (r#"{"n": "{{ parents.extract.output.rows }}"}"#, Some(r#"{"n":12}"#)),
        (r#"["{{parents.extract.output.files.0.name}}"]"#, Some(r#"["a.csv"]"#)),
        (r#""{{ parents.extract.output.none }}""#, Some("null")),
        (r#""{{ parents.extract.output.files }}""#, Some(r#"[{"name":"a.csv"}]"#)),
        (r#""{{ parents.extract.output.rows }} rows, {{ parents.extract.output.note }}""#, Some(r#""12 rows, done""#)),
        (r#""{{ parents.v1.2.output.ok }}""#, Some("true")),
        (r#""{{ parents.plain.output }}""#, Some(r#""not JSON""#)),
        (r#""{{ flow }}""#, Some(r#""00000000-0000-0000-0000-000000000000""#)),
        (r#""{{ parents.mute.run }}!""#, Some(r#""00000000-0000-0000-0000-000000000000!""#)),
        (r#""{{ parents.broken.error }}""#, Some(r#""exit 1: \"no\"""#)),
        (r#"["it said {{ parents.broken.error }}"]"#, Some(r#"["it said exit 1: \"no\""]"#)),
        (r#""{{ parents.mute.error }}""#, Some("null")),
        // A reference to a secret is filled in at delivery.
        (
            r#"["{{secrets.api}}", "{{ flow }} {{ secrets.a.b }}"]"#,
            Some(r#"["{{ secrets.api }}","00000000-0000-0000-0000-000000000000 {{ secrets.a.b }}"]"#),
        ),
        // Nothing to fill in: the job's payload is delivered unchanged.
        (r#"{"b": 1, "a": "{"}"#, None),
        (r#"{"{{ key }}": 1}"#, None),
    ] {
        assert_eq!(rendered(payload), Ok(filled.map(str::to_owned)), "{payload}");
    }
}

#[test]
fn the_error_names_the_missing_value_and_its_path() {
    for (payload, why) in [
        (r#""{{ parents.extract.output.rowz }}""#, r#"the output of "extract" has no "rowz""#),
        (r#""{{ parents.extract.output.files.7.name }}""#, r#"the output of "extract" has no "files.7""#),
        (r#""{{ parents.mute.output }}""#, r#"the run of "mute", which is succeeded, has no output"#),
        (r#""{{ parents.plain.output.x }}""#, r#"the output of "plain" is not JSON"#),
        (r#""{{ parents.other.output.x }}""#, r#"names "other", which is not in depends_on"#),
    ] {
        let error = rendered(payload).unwrap_err();
        assert!(error.contains(why), "{payload}: {error}");
    }
}

#[test]
fn a_rendered_payload_over_the_limit_is_refused() {
    let run = RunId::floor(DbTime::EPOCH);
    let long = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX / 2));
    let ancestor = Ancestor { run, state: State::Succeeded, output: Some(&long), error: None };
    let parents = BTreeMap::from([("a", ancestor)]);
    for twice in [
        r#"["{{ parents.a.output }}", "{{ parents.a.output }}"]"#,
        r#""{{ parents.a.output }} and {{ parents.a.output }}""#,
    ] {
        assert!(render(Some(twice), run, &parents).unwrap_err().contains("at most 262144"), "{twice}");
    }
}

#[test]
fn the_buffer_does_not_grow_beyond_the_limit() {
    let mut bytes = Bounded::default();
    let part = "x".repeat(1_000);
    while bytes.raw(&part).is_ok() {}
    assert!(bytes.0.len() <= PAYLOAD_BYTES_MAX && bytes.0.len() > PAYLOAD_BYTES_MAX - 1_000);
}

/// A job that an earlier release stored may exceed the limit.
#[test]
fn a_payload_with_too_many_placeholders_is_refused() {
    let payload = |count: usize| serde_json::json!(vec!["{{ parents.extract.output.rows }}"; count]).to_string();
    assert!(rendered(&payload(PLACEHOLDERS_MAX)).is_ok());
    let why = rendered(&payload(10_000)).unwrap_err();
    assert_eq!(why, "has 10000 placeholders {{ ... }}; at most 100 are allowed");
}

fn following(payload: &str, parents: &[&str]) -> JobSpec {
    let mut spec = spec(Span::minutes(1));
    (spec.payload, spec.schedule) = (Some(payload.to_owned()), None);
    spec.depends_on = parents.iter().map(|name| DependsOn { job: (*name).to_owned(), when: When::default() }).collect();
    spec
}

#[test]
fn a_run_outside_a_flow_cannot_refer_to_parents() {
    let takes = following(r#"{"n": "{{ parents.a.output.rows }}"}"#, &["a"]);
    let refused = check_outside(&takes, None).unwrap_err();
    assert!(
        refused.message.contains("{{ parents.a.output.rows }}, but this run would belong to no flow"),
        "{}",
        refused.message
    );
    assert_eq!(check_outside(&takes, Some("{}")), Ok(()));
    assert_eq!(check_outside(&following(r#""{{ flow }}""#, &["a"]), None), Ok(()));
    assert_eq!(check_outside(&following(r#"{"n": 1}"#, &["a"]), None), Ok(()));
}

#[test]
fn a_definition_with_wrong_placeholders_is_refused() {
    let problems_of = |payload: &str, parents: &[&str]| {
        problems(&following(payload, parents))
            .into_iter()
            .map(|invalid| invalid.to_string())
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(problems_of(r#"{"n": "{{ parents.a.output.rows }} {{ flow }}"}"#, &["a"]), "");
    assert_eq!(problems_of(r#""{{ whatever }}""#, &[]), "", "a job without parents delivers its payload unchanged");
    assert!(problems_of(r#""{{ parents.a.run }}""#, &[]).contains("depends_on is empty"));
    let many = serde_json::json!(vec!["{{ flow }}"; PLACEHOLDERS_MAX + 1]).to_string();
    assert_eq!(problems_of(&many, &["a"]), "payload: has 101 placeholders {{ ... }}; at most 100 are allowed");
    let ticking =
        JobSpec { schedule: spec(Span::minutes(1)).schedule, ..following(r#""{{ parents.a.run }}""#, &["a"]) };
    assert!(problems(&ticking)[0].message.contains("the job has a schedule"));
    for (payload, wrong) in [
        (r#""{{ parents.b.output.rows }}""#, "names \"b\", which is not in depends_on"),
        (r#""{{ parents.a.input }}""#, "names \"a.input\", which is not in depends_on"),
        (r#""{{ parents.a.output..x }}""#, "has an empty path segment"),
        (r#""{{ parent.a.output }}""#, "is not a known placeholder"),
        (r#""{{ flow""#, "has {{ without }}"),
    ] {
        assert!(problems_of(payload, &["a"]).contains(wrong), "{payload}: {}", problems_of(payload, &["a"]));
    }
}
