//! Claims on old runs. They are listed in a table, so that a search for claims need not read from the oldest open run on.

use everytick_domain::{
    ids::{Fence, RunId},
    plan::Fate,
    run::{State, Verdict},
    time::Span,
};

use super::{Bench, TENANT, TTL, actor, born, by_name, incarnation, new_run, overlapping, s, spec, tick, ticks};
use crate::{
    Beat, ClaimedRun, LISTED_PER_PAGE_MAX, Lease, ListedClaims, NodeInfo, OldClaim, RowAnswer, StoreError, Supersede,
};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_old_claims {
    ($open:path) => {
        $crate::conformance_group! { $open, old_claims:
            an_old_claim_is_listed_before_the_bound_passes_it,
            the_bound_does_not_pass_unlisted_claims,
            a_claim_made_after_the_listing_is_listed_by_the_renewal,
            a_claim_below_the_bound_is_listed_and_does_not_move_the_bound,
            a_repeated_tick_does_not_change_the_listed_claim_of_another_node,
            a_renewal_with_an_older_fence_does_not_change_a_listed_claim,
            a_node_lists_no_claims_of_other_nodes,
            a_renewal_does_not_raise_the_bound_of_another_lease,
            an_old_claim_that_ended_is_not_listed_any_more,
            cancelling_a_job_keeps_the_old_claims_of_other_jobs,
            an_old_claim_counts_for_overlap,
            listed_claims_come_in_pages,
            a_lost_lease_lists_nothing,
            an_old_claim_is_not_pruned,
            a_listed_claim_on_an_ended_run_does_not_keep_the_run,
        }
    };
}

async fn listed(bench: &Bench, lease: &Lease) -> ListedClaims {
    bench.store.listed_claims(lease, None, LISTED_PER_PAGE_MAX).await.unwrap()
}

/// Claims above the bound, which are found by reading the runs.
async fn above(bench: &Bench, lease: &Lease) -> Vec<ClaimedRun> {
    let from = listed(bench, lease).await.open_from.unwrap();
    bench.store.claims_between(lease, from, RunId::floor(s(1_000_000))).await.unwrap()
}

pub async fn an_old_claim_is_listed_before_the_bound_passes_it(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(10);
    let old = bench.claimed(&lease, &job, 10).await;
    assert_eq!(above(bench, &lease).await, std::slice::from_ref(&old));
    bench.go(600);
    let young = bench.claimed(&lease, &job, 600).await;
    let bound = RunId::floor(s(540));
    bench.pass_claims(&lease, bound).await;
    let found = listed(bench, &lease).await;
    assert_eq!((found.open_from, found.claims), (Some(bound), vec![old.clone()]));
    assert_eq!(above(bench, &lease).await, std::slice::from_ref(&young), "the search does not start at the old run");
    assert_eq!(bench.store.load_claimed(&lease).await.unwrap(), [old.clone(), young.clone()]);
    let open: Vec<_> = bench.load(&job).await.open.iter().map(|run| run.id).collect();
    assert_eq!(open, [old.id, young.id]);
    let next = bench.join("a", 2).await;
    assert_eq!(bench.store.load_lost(&next, 10).await.unwrap(), [old, young]);
}

pub async fn the_bound_does_not_pass_unlisted_claims(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    let bound = listed(bench, &lease).await.open_from;
    bench.go(10);
    let old = bench.claimed(&lease, &job, 10).await;
    bench.go(600);
    let beat = Beat::of(RunId::floor(s(540)));
    bench.store.renew(&lease, Span::hours(1), &beat).await.unwrap();
    assert_eq!(listed(bench, &lease).await.open_from, bound, "no claims were listed yet");
    bench.store.list_old_claims(&lease, beat.open_from.unwrap()).await.unwrap();
    bench.store.renew(&lease, Span::hours(1), &Beat { open_from: None, ..beat.clone() }).await.unwrap();
    assert_eq!(listed(bench, &lease).await.open_from, bound, "the node may have claims that are not in its memory");
    bench.pass_claims(&lease, beat.open_from.unwrap()).await;
    assert_eq!(listed(bench, &lease).await.open_from, beat.open_from);
    assert_eq!(bench.store.load_claimed(&lease).await.unwrap(), [old]);
}

pub async fn a_claim_made_after_the_listing_is_listed_by_the_renewal(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let id = bench.waiting(&lease, &job, 10).await;
    bench.go(600);
    let bound = RunId::floor(s(540));
    bench.store.list_old_claims(&lease, bound).await.unwrap();
    let claimed = bench.claim(&lease, id).await;
    let beat = Beat { old_claims: vec![OldClaim::of(&claimed)], ..Beat::of(bound) };
    for _ in 0..2 {
        bench.pass_claims(&lease, bound).await;
        bench.store.renew(&lease, Span::hours(1), &beat).await.unwrap();
        let found = listed(bench, &lease).await;
        assert_eq!((found.open_from, found.claims), (Some(bound), vec![claimed.clone()]));
    }
}

pub async fn a_claim_below_the_bound_is_listed_and_does_not_move_the_bound(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(10);
    let id = bench.waiting(&lease, &job, 10).await;
    bench.go(600);
    let bound = RunId::floor(s(540));
    bench.pass_claims(&lease, bound).await;
    let claimed = bench.claim(&lease, id).await;
    bench.record(&lease, ticks(&job, 1, vec![born(&job, 30)])).await;
    let found = listed(bench, &lease).await;
    let ids: Vec<_> = found.claims.iter().map(|run| (run.id, run.attempt)).collect();
    assert_eq!((found.open_from, ids), (Some(bound), vec![(id, 1), (born(&job, 30).tick.id, 1)]));
    assert_eq!(bench.load(&job).await.open.len(), 2);
    bench.settle(&claimed, Verdict::Redeliver).await;
    let again = bench.claim(&lease, id).await;
    assert_eq!(listed(bench, &lease).await.claims[0], again, "it is listed with its new fence");
    let next = bench.join("a", 2).await;
    assert_eq!(bench.store.load_lost(&next, 10).await.unwrap().len(), 2);
}

pub async fn a_repeated_tick_does_not_change_the_listed_claim_of_another_node(bench: &Bench) {
    let (first, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&first, &job, 10).await;
    bench.go(600);
    bench.pass_claims(&first, RunId::floor(s(540))).await;
    let second = bench.join("b", 2).await;
    bench.pass_claims(&second, RunId::floor(s(540))).await;
    let answers = bench.record(&second, ticks(&job, 1, vec![born(&job, 10), born(&job, 20)])).await;
    assert_eq!(answers, [RowAnswer::Existed, RowAnswer::Inserted]);
    let ids = |found: ListedClaims| found.claims.iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!(ids(listed(bench, &first).await), [claimed.id]);
    assert_eq!(ids(listed(bench, &second).await), [born(&job, 20).tick.id]);
    // A store for one node ended the lease when the second node joined.
    let left = bench.store.leave(&first).await;
    assert!(matches!(left, Ok(()) | Err(StoreError::LeaseLost)), "{left:?}");
    assert_eq!(
        bench.store.load_lost(&second, 10).await.unwrap(),
        [claimed],
        "the claim is found after its node has left"
    );
}

pub async fn a_renewal_with_an_older_fence_does_not_change_a_listed_claim(bench: &Bench) {
    let (first, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&first, &job, 10).await;
    bench.go(600);
    let bound = RunId::floor(s(540));
    bench.pass_claims(&first, bound).await;
    let second = bench.join("b", 2).await;
    let older = OldClaim { fence: Fence::from_raw(1), ..OldClaim::of(&claimed) };
    let beat = Beat { old_claims: vec![older], ..Beat::of(bound) };
    bench.store.renew(&second, Span::hours(1), &beat).await.unwrap();
    assert_eq!(listed(bench, &first).await.claims, std::slice::from_ref(&claimed));
    // A store for one node ended the lease when the second node joined.
    let left = bench.store.leave(&first).await;
    assert!(matches!(left, Ok(()) | Err(StoreError::LeaseLost)), "{left:?}");
    assert_eq!(
        bench.store.load_lost(&second, 10).await.unwrap(),
        [claimed],
        "the claim is found after its node has left"
    );
}

pub async fn a_node_lists_no_claims_of_other_nodes(bench: &Bench) {
    let (first, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&first, &job, 10).await;
    let second = bench.join("b", 2).await;
    bench.go(600);
    bench.pass_claims(&second, RunId::floor(s(540))).await;
    assert!(listed(bench, &second).await.claims.is_empty());
    assert!(listed(bench, &first).await.claims.is_empty());
    assert_eq!(above(bench, &first).await, [claimed]);
}

pub async fn a_renewal_does_not_raise_the_bound_of_another_lease(bench: &Bench) {
    let (first, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let id = bench.waiting(&first, &job, 10).await;
    bench.go(600);
    let bound = RunId::floor(s(540));
    while bench.store.list_old_claims(&first, bound).await.unwrap() < bound {}
    let claimed = bench.claim(&first, id).await;
    let second = bench.join("b", 2).await;
    bench.pass_claims(&second, bound).await;
    // A store for one node ended the lease when the second node joined.
    let left = bench.store.leave(&first).await;
    assert!(matches!(left, Ok(()) | Err(StoreError::LeaseLost)), "{left:?}");
    assert_eq!(bench.store.load_lost(&second, 10).await.unwrap(), [claimed], "it was claimed after the listing");
}

pub async fn an_old_claim_that_ended_is_not_listed_any_more(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(50);
    let mut claims = Vec::new();
    for n in 1..=5 {
        claims.push(bench.claimed(&lease, &job, n * 10).await);
    }
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    assert_eq!(listed(bench, &lease).await.claims, claims);
    bench.settle(&claims[0], Verdict::Succeeded).await;
    bench.settle(&claims[1], Verdict::Redeliver).await;
    bench.store.cancel_run(TENANT, &actor(), claims[2].id).await.unwrap();
    let given = Supersede { job: job.id, run: claims[3].id, to: claims[4].id };
    bench.store.supersede(&lease, &[given]).await.unwrap();
    assert_eq!(listed(bench, &lease).await.claims, claims[4..]);
    let open: Vec<_> = bench.load(&job).await.open.iter().map(|run| run.id).collect();
    assert_eq!(open, [claims[1].id, claims[4].id], "one waits, one is claimed");
    let cancelled = bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    assert_eq!((cancelled.runs.waited, cancelled.runs.claimed), (vec![claims[1].id], vec![claims[4].id]));
    assert!(listed(bench, &lease).await.claims.is_empty());
    let next = bench.join("a", 2).await;
    assert!(bench.store.load_lost(&next, 10).await.unwrap().is_empty());
}

pub async fn cancelling_a_job_keeps_the_old_claims_of_other_jobs(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    let other = bench.create(spec("other")).await;
    bench.go(10);
    let (ours, theirs) = (bench.claimed(&lease, &job, 10).await, bench.claimed(&lease, &other, 10).await);
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    let cancelled = bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    assert_eq!(cancelled.runs.claimed, [ours.id]);
    assert_eq!(bench.run(theirs.id).await.state, State::Claimed);
    assert_eq!(listed(bench, &lease).await.claims, [theirs]);
}

pub async fn an_old_claim_counts_for_overlap(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    bench.claimed(&lease, &job, 10).await;
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    let asked = bench.store.trigger(TENANT, &actor(), new_run("j", "k")).await.unwrap();
    assert_eq!(asked.state, State::Skipped, "skipped for overlap");
}

pub async fn listed_claims_come_in_pages(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(50);
    let rows: Vec<_> = (1..=5).map(|n| born(&job, n * 10)).collect();
    let ids: Vec<_> = rows.iter().map(|row| row.tick.id).collect();
    bench.record(&lease, ticks(&job, 1, rows)).await;
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = bench.store.listed_claims(&lease, after, 2).await.unwrap();
        assert!(page.claims.len() <= 2);
        seen.extend(page.claims.iter().map(|run| run.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
    let (limit, next) = (2, bench.join("a", 2).await);
    assert_eq!(bench.store.load_lost(&next, limit).await.unwrap().len(), limit);
    assert_eq!(bench.store.load_lost(&next, 10).await.unwrap().len(), 5, "they are returned until they are settled");
}

pub async fn a_lost_lease_lists_nothing(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    let job = bench.create(spec("j")).await;
    bench.go(10);
    bench.record(&lease, ticks(&job, 1, vec![tick(&job, 10, Fate::Run)])).await;
    bench.go(600);
    assert!(matches!(bench.store.list_old_claims(&lease, RunId::floor(s(540))).await, Err(StoreError::LeaseLost)));
}

pub async fn an_old_claim_is_not_pruned(bench: &Bench) {
    const DAY: i64 = 86_400;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let (open, over) = (bench.claimed(&lease, &job, 10).await, bench.claimed(&lease, &job, 20).await);
    bench.settle(&over, Verdict::Succeeded).await;
    bench.go(3 * DAY);
    bench.pass_claims(&lease, RunId::floor(s(3 * DAY - 60))).await;
    let young = bench.claimed(&lease, &job, 3 * DAY).await;
    bench.settle(&young, Verdict::Succeeded).await;
    bench.raise(&job, 1, Some(s(3 * DAY + 10))).await;
    bench.store.prune(s(2 * DAY), 100).await.unwrap();
    assert_eq!(bench.run(open.id).await.state, State::Claimed);
    bench.settle(&open, Verdict::Succeeded).await;
    assert_eq!(bench.run(open.id).await.state, State::Succeeded);
}

pub async fn a_listed_claim_on_an_ended_run_does_not_keep_the_run(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let (old, last) = (bench.claimed(&lease, &job, 10).await, bench.claimed(&lease, &job, 20).await);
    bench.settle(&old, Verdict::Succeeded).await;
    bench.settle(&last, Verdict::Succeeded).await;
    bench.raise(&job, 1, Some(s(30))).await;
    let beat = Beat { old_claims: vec![OldClaim::of(&old)], open_from: None, ..Beat::of(RunId::floor(s(0))) };
    bench.store.renew(&lease, Span::hours(1), &beat).await.unwrap();
    assert_eq!(bench.store.prune(s(2 * 86_400), 100).await.unwrap().runs, 1);
    assert!(matches!(bench.store.get_run(TENANT, old.id).await, Err(StoreError::NotFound("run"))));
}
