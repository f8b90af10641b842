//! The list of old claims: its contents, and nodes of an earlier release that do not read it.

use everytick_domain::{ids::RunId, run::Verdict, time::Span};
use everytick_store::{
    Beat, OldClaim, Settle, Supersede,
    conformance::{TENANT, actor, born, by_name, overlapping, s, settle, spec, ticks},
};
use sqlx::{Connection as _, PgConnection};

use super::{Opened, bench};

async fn rows(opened: &Opened) -> i64 {
    let mut look = opened.connect().await;
    let rows = sqlx::query_scalar("select count(*) from open_claims").fetch_one(&mut look).await.unwrap();
    look.close().await.unwrap();
    rows
}

async fn run(opened: &Opened, text: &str) {
    let mut connection: PgConnection = opened.connect().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn open_from(opened: &Opened) -> RunId {
    open_from_of(opened, "a").await
}

async fn open_from_of(opened: &Opened, node: &str) -> RunId {
    let mut look = opened.connect().await;
    let found =
        sqlx::query_scalar("select open_from from leases where node = $1").bind(node).fetch_one(&mut look).await;
    look.close().await.unwrap();
    RunId::from_uuid(found.unwrap())
}

#[tokio::test]
async fn claims_on_young_runs_are_never_listed_and_ended_claims_are_removed() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(50);
    let mut claims = Vec::new();
    for n in 1..=5 {
        claims.push(bench.claimed(&lease, &job, n * 10).await);
    }
    assert_eq!(rows(&opened).await, 0);
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    assert_eq!(rows(&opened).await, 5);
    let now = |run, verdict| Settle { ended_at: s(600), ..settle(run, verdict) };
    bench.store.settle(&[now(&claims[0], Verdict::Succeeded)]).await.unwrap();
    assert_eq!(rows(&opened).await, 4, "a settlement");
    bench.store.settle(&[now(&claims[1], Verdict::Redeliver)]).await.unwrap();
    assert_eq!(rows(&opened).await, 3, "a loss");
    bench.store.cancel_run(TENANT, &actor(), claims[2].id).await.unwrap();
    assert_eq!(rows(&opened).await, 2, "a cancel");
    let given = Supersede { job: job.id, run: claims[3].id, to: claims[4].id };
    bench.store.supersede(&lease, &[given]).await.unwrap();
    assert_eq!(rows(&opened).await, 1, "a newer run");
    bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    assert_eq!(rows(&opened).await, 0);
}

/// A node of an earlier release settles a run and does not know the list.
#[tokio::test]
async fn a_listed_claim_whose_run_was_settled_elsewhere_is_removed() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&lease, &job, 10).await;
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    let ended = format!("update runs set state = 2, incarnation = null, finished_at = 0 where id = '{}'", claimed.id);
    run(&opened, &ended).await;
    assert!(bench.load(&job).await.open.is_empty());
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty());
    assert_eq!(rows(&opened).await, 0, "reading it removed it");
}

#[tokio::test]
async fn a_claim_whose_lease_an_earlier_release_has_removed_is_lost() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&lease, &job, 10).await;
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    run(&opened, "delete from leases").await;
    let other = bench.join("b", 2).await;
    assert_eq!(bench.store.load_lost(&other, 10).await.unwrap(), std::slice::from_ref(&claimed));
    bench.settle(&claimed, Verdict::Redeliver).await;
    assert!(bench.store.load_lost(&other, 10).await.unwrap().is_empty());
    assert_eq!(rows(&opened).await, 0);
}

/// Such a node reads only the claims from the lowest `open_from` on.
#[tokio::test]
async fn while_a_node_of_an_earlier_release_is_alive_open_from_passes_no_claim() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.join("b", 2).await;
    let of_another_lease = open_from_of(&opened, "b").await;
    bench.go(20);
    let (claimed, waits) = (bench.claimed(&lease, &job, 20).await, bench.waiting(&lease, &job, 10).await);
    bench.go(600);
    let bound = RunId::floor(s(540));
    bench.pass_claims(&lease, bound).await;
    assert_eq!(open_from(&opened).await, bound);
    let old = "insert into leases (incarnation, node, fence, until, open_from, ended, version, started_at, renewed_at) \
               values (gen_random_uuid(), 'old', 1, 9e15, 'ffffffff-ffff-ffff-ffff-ffffffffffff', false, '0.1.0', 0, 0)";
    run(&opened, old).await;
    bench.record(&lease, ticks(&job, 1, vec![born(&job, 30)])).await;
    assert_eq!(open_from(&opened).await, born(&job, 30).tick.id, "a run born claimed lowers it");
    let beat = Beat { old_claims: vec![OldClaim::of(&claimed)], ..Beat::of(bound) };
    bench.store.renew(&lease, Span::days(9), &beat).await.unwrap();
    assert_eq!(open_from(&opened).await, claimed.id, "a renewal lowers it to the oldest claim");
    bench.claim(&lease, waits).await;
    assert_eq!(open_from(&opened).await, waits, "a claim lowers it");
    assert_eq!(open_from_of(&opened, "b").await, of_another_lease);
}

/// Such a node reads the claims of a dead node from the lowest `open_from` on too.
#[tokio::test]
async fn while_a_node_of_an_earlier_release_is_alive_a_dead_nodes_open_from_stays_until_its_claims_are_settled() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (dead, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&dead, &job, 10).await;
    bench.go(400);
    let (old, alive) = (bench.join("old", 3).await, bench.join("b", 2).await);
    run(&opened, &format!("update leases set lists_claims = false where incarnation = '{}'", old.incarnation)).await;
    bench.store.leave(&dead).await.unwrap();
    for _ in 0..2 {
        assert_eq!(bench.store.load_lost(&alive, 10).await.unwrap(), std::slice::from_ref(&claimed));
        assert!(open_from(&opened).await <= claimed.id);
    }
    bench.settle(&claimed, Verdict::Redeliver).await;
    assert!(bench.store.load_lost(&alive, 10).await.unwrap().is_empty());
    let mut look = opened.connect().await;
    let ended = sqlx::query_scalar::<_, i64>("select count(*) from leases where ended").fetch_one(&mut look).await;
    assert_eq!(ended.unwrap(), 0, "the lease is removed with its last claim");
}

#[tokio::test]
async fn without_a_node_of_an_earlier_release_the_runs_of_a_dead_node_are_read_once() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (dead, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&dead, &job, 10).await;
    bench.go(400);
    let alive = bench.join("b", 2).await;
    bench.store.leave(&dead).await.unwrap();
    assert_eq!(bench.store.load_lost(&alive, 10).await.unwrap(), [claimed]);
    assert_eq!(open_from(&opened).await.uuid(), uuid::Uuid::max());
}
