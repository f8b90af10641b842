//! Answers for instants before an edit. Some of the edits change neither `enabled` nor the schedule.

use super::*;

/// The definition of the job with another schedule or another `enabled`.
fn set(facts: &mut Facts, change: impl FnOnce(&mut Was)) {
    let mut was = Was::of(&facts.job);
    change(&mut was);
    let spec = job::JobSpec { enabled: was.enabled, schedule: was.schedule, ..(*facts.job.spec).clone() };
    facts.job.schedule = job::compile(&spec, &[], &CronCache::default()).unwrap();
    facts.job.spec = Arc::new(spec);
}

fn edited(x: i64, by: &str, was: Was) -> Changed {
    Changed { effective_at: s(x), by: by.into(), what: What::Edited(Some(was)) }
}

fn at_two(facts: &Facts) -> Explanation {
    explain(facts, Question::at(s(120)), ShownIn::JobZone)
}

#[test]
fn an_answer_does_not_name_an_edit_that_left_the_job_disabled() {
    let mut facts = facts();
    let disabled = Was { enabled: false, ..every(60) };
    facts.changes.push(edited(150, "bob", disabled.clone()));
    set(&mut facts, |was| was.enabled = false);
    let answer = at_two(&facts);
    assert!(!answer.words.contains("bob") && answer.words.contains("the job is disabled"), "{}", answer.words);
    facts.changes.push(edited(200, "eve", disabled));
    set(&mut facts, |was| was.enabled = true);
    let answer = at_two(&facts);
    assert!(answer.words.contains("was disabled; eve enabled it at 2026-11-16T00:03:20Z"), "{}", answer.words);
    facts.changes[2].what = What::Edited(None);
    let answer = at_two(&facts);
    assert!(answer.words.ends_with("no tick: the job was disabled"), "{}", answer.words);
    assert_eq!(answer.kind, Kind::Disabled);
}

#[test]
fn an_answer_does_not_name_an_edit_that_added_no_schedule() {
    let mut facts = facts();
    let manual = Was { enabled: true, schedule: None };
    facts.changes.push(edited(150, "bob", manual.clone()));
    set(&mut facts, |was| was.schedule = None);
    let answer = at_two(&facts);
    assert!(!answer.words.contains("bob") && answer.words.contains("the job has no schedule"), "{}", answer.words);
    facts.changes.push(edited(200, "eve", manual));
    set(&mut facts, |was| *was = every(60));
    let answer = at_two(&facts);
    assert!(answer.words.contains("one was added by eve at 2026-11-16T00:03:20Z"), "{}", answer.words);
    assert_eq!((answer.by.as_deref(), answer.since), (Some("eve"), Some(s(200))));
    facts.changes[2].what = What::Edited(None);
    let answer = at_two(&facts);
    assert!(answer.words.ends_with("no tick: the job had no schedule"), "{}", answer.words);
}

#[test]
fn a_new_schedule_is_attributed_to_the_edit_that_set_it() {
    let mut facts = facts();
    facts.changes.extend([
        edited(150, "bob", every(7_200)),
        edited(200, "eve", every(7_200)),
        edited(250, "joe", every(60)),
    ]);
    let answer = at_two(&facts);
    assert!(answer.words.contains("only of the definition that eve set at 2026-11-16T00:03:20Z"), "{}", answer.words);
    assert_eq!((answer.kind, answer.by.as_deref()), (Kind::DefinitionChanged, Some("eve")));
    // The schedule of an edit between is neither the former nor the present one.
    facts.changes[3] = edited(250, "joe", every(3_600));
    assert!(at_two(&facts).words.contains("only of the definition that joe set at 2026-11-16T00:04:10Z"));
}

#[test]
fn an_edit_of_other_fields_does_not_end_a_schedule() {
    let mut facts = facts();
    facts.changes.push(edited(150, "bob", every(60)));
    let no_tick = |facts: &Facts| explain(facts, Question::at(s(121)), ShownIn::JobZone).words;
    assert!(no_tick(&facts).contains("not a tick of the schedule; the nearest ticks are"), "{}", no_tick(&facts));
    facts.changes.push(edited(200, "eve", every(60)));
    set(&mut facts, |was| *was = every(7_200));
    assert!(no_tick(&facts).contains("in force until 2026-11-16T00:03:20Z; in that"), "{}", no_tick(&facts));
    facts.changes[2].what = What::Edited(None);
    assert!(no_tick(&facts).contains("not a tick of the definition in force then; in that"), "{}", no_tick(&facts));
}
