//! Backfills over the instant of an answer.

use super::*;
use crate::ids::BackfillId;

#[test]
fn backfills_are_listed_besides_the_record_of_the_tick() {
    let of = |state, is_running| Backfilled {
        backfill: BackfillId::from_uuid(uuid::Uuid::nil()),
        by: "ann".into(),
        created_at: s(0),
        run: RunId::floor(s(7)),
        state,
        is_running,
    };
    let alone = explain(&facts(), Question::at(s(120)), ShownIn::JobZone);
    let explained = |state, is_running| {
        let facts = Facts { backfilled: vec![of(state, is_running)], ..facts() };
        explain(&facts, Question::at(s(120)), ShownIn::JobZone)
    };
    let beside = explained(Some(State::Failed), true);
    assert_eq!((beside.kind, &beside.record), (alone.kind, &alone.record));
    let (run, made) = (RunId::floor(s(7)), format!("backfill {} by ann at {}", uuid::Uuid::nil(), s(0)));
    assert_eq!(beside.words, format!("{}; backfilled: run {run} failed ({made})", alone.words));
    assert_eq!(beside.backfilled, [of(Some(State::Failed), true)]);
    assert!(explained(None, true).words.ends_with(&format!("not backfilled yet: {made} has not reached it")));
    let facts_of = Facts { backfilled: vec![of(None, true)], ..facts() };
    assert!(explain(&facts_of, Question::at(s(121)), ShownIn::JobZone).backfilled.is_empty(), "not a tick");
    let not = explained(None, false);
    assert_eq!((&not.words, &not.backfilled), (&alone.words, &Vec::new()), "it did not include the tick");
    assert!(not.details.contains(&"not backfilled".to_owned()));
    assert!(not.commands.contains(&format!("everytick job backfill j --from {} --to {}", s(120), s(121))), "{not:?}");
}
