//! Runs the campaign from start to report.

use std::path::{Path, PathBuf};

use sqlx::{Connection, PgConnection};

use crate::{
    Options,
    check::check,
    cluster::Cluster,
    common::{now_ms, sleep_ms, sleep_until_ms},
    compare, crowd, edits,
    faults::{self, Plan},
    history::{Fault, History},
    load::{Load, Plans},
    net::Net,
    node::{self, Setup},
    postgres::{self, Postgres},
    probe::Probes,
    progress, record,
    report::{CATCH_UP_MS_MAX, Report},
    sabotage::{self, Sabotage},
    sink::Sink,
};

/// Time from the creation of the jobs to their first tick.
const LEAD_MS: i64 = 5_000;
/// A multiple of every interval of the jobs.
const ALIGN_MS: i64 = 10_000;
/// No fault begins in these last milliseconds, so that all faults are healed when the ticks end.
const QUIET_MS: i64 = 6_000;
const SAMPLE_MS: i64 = 300;
/// How long after the heal the record must stay caught up.
const WATCH_MS: i64 = 2_000;
/// How long to wait for the cluster to catch up after a fault.
const GIVE_UP_MS: i64 = 60_000;
/// How many tasks edit jobs at the same time.
const EDITORS: u64 = 6;

pub(crate) async fn run(options: &Options, folder: &Path) -> anyhow::Result<Report> {
    let net = if options.spaces { Net::Spaces } else { Net::Plain };
    net.start().await?;
    let postgres = Postgres::start(net, &folder.join("postgres"), free_port(net)?).await?;
    let url = postgres.url.clone();
    if let Some(sabotage) = options.sabotage {
        sabotage.begin(&postgres).await?;
    }
    let setup = Setup {
        net,
        binary: options.binary()?,
        database_url: url.clone(),
        folder: folder.to_owned(),
        faketime: node::faketime(),
        sabotage: options.sabotage,
    };
    let clocks = setup.faketime.is_some();
    let (sink, hook, replaced) = Sink::start(net).await?;
    let (cluster, apis) = Cluster::start(&setup, postgres).await?;
    let mut connection = sabotage::with_schema(&*cluster.postgres.lock().await).await?;
    let before = postgres::offset(&mut connection).await?;
    connection.close().await?;

    // Intervals start here. The oracle counts from 1970, which gives the same ticks because of the alignment.
    let starts_at = (now_ms() + LEAD_MS).div_euclid(ALIGN_MS) * ALIGN_MS + ALIGN_MS;
    let ends_at = starts_at + options.seconds() * 1_000;
    let load = Load { plans: Plans::default(), apis: apis.clone(), hook, ends_at };
    load.create_steady(starts_at).await?;
    crowd::start(&apis);
    let probes = Probes::default();
    tokio::spawn(probes.clone().run(apis.clone(), replaced, options.seed ^ 0x51));
    sleep_until_ms(starts_at).await;
    let mut load_tasks = vec![tokio::spawn(load.clone().create_one_shots(options.seed ^ 0x07))];
    for editor in 0..EDITORS {
        load_tasks.push(tokio::spawn(edits::run(load.clone(), editor, options.seed.wrapping_add(editor << 8))));
    }
    let false_owners = options.lies.then(|| tokio::spawn(sabotage::assign_falsely(url.clone(), options.seed ^ 0x11e)));

    let watch = Watch { url: url.clone(), plans: load.plans.clone(), starts_at };
    let faults = strike(options, net, clocks, &cluster, &watch, ends_at).await?;
    sleep_until_ms(ends_at).await;
    false_owners.inspect(|task| task.abort());
    for task in load_tasks {
        task.await?;
    }
    watch.settled().await;

    let mut connection = PgConnection::connect(&url).await?;
    let after = postgres::offset(&mut connection).await?;
    let rows = record::rows(&mut connection, 0).await?;
    let planned = load.plans.lock().clone();
    let history = History {
        jobs: record::jobs(&mut connection, &planned, now_ms()).await?,
        ranges: record::ranges(&mut connection).await?,
        deliveries: sink.all(),
        probes: probes.all(),
        faults: faults.clone(),
        offset: crate::history::Offset { low: before.low.min(after.low), high: before.high.max(after.high) },
        rows,
    };
    connection.close().await?;
    let api_differs = compare::differences(&apis[0], &history.rows).await?;
    cluster.stop().await?;
    Ok(Report {
        seed: options.seed,
        seconds: options.seconds(),
        network_faults: net == Net::Spaces,
        clock_faults: clocks,
        sabotage: options.sabotage.map(Sabotage::word),
        findings: check(&history),
        faults,
        api_differs,
        oddities: cluster.oddities(),
        judge_lag: !options.safety_only,
    })
}

/// Applies one round of faults after another, each until the cluster has caught up.
async fn strike(
    options: &Options,
    net: Net,
    clocks: bool,
    cluster: &Cluster,
    watch: &Watch,
    ends_at: i64,
) -> anyhow::Result<Vec<Fault>> {
    let mut plan = Plan::new(options.seed, net, clocks);
    let mut done = Vec::new();
    sleep_ms(3_000).await;
    while now_ms() < ends_at - QUIET_MS {
        let round = plan.round();
        let fault = watch.round(cluster, &round).await?;
        let took = fault.catch_up_ms().map_or("never".to_owned(), |ms| format!("{:.1} s", crate::report::seconds(ms)));
        eprintln!("{} {}: caught up {took}", crate::common::rfc3339(fault.began_at), fault.what);
        done.push(fault);
        sleep_ms(plan.pause_ms()).await;
    }
    Ok(done)
}

/// Reads the record from time to time.
struct Watch {
    url: String,
    plans: Plans,
    starts_at: i64,
}

impl Watch {
    /// The first run or tick at or after `from` that is behind. A database that does not answer counts as behind too.
    async fn behind(&self, from: i64) -> Option<String> {
        let read = async {
            let mut connection = PgConnection::connect(&self.url).await?;
            let now = now_ms();
            let rows = record::rows(&mut connection, from).await?;
            connection.close().await?;
            Ok::<_, anyhow::Error>((now, rows))
        };
        match tokio::time::timeout(std::time::Duration::from_secs(2), read).await {
            Ok(Ok((now, rows))) => progress::behind(&self.plans.lock(), &rows, from.max(self.starts_at), now),
            Ok(Err(error)) => Some(format!("database error: {error:#}")),
            Err(_) => Some("the database does not answer".to_owned()),
        }
    }

    async fn round(&self, cluster: &Cluster, round: &[faults::Fault]) -> anyhow::Result<Fault> {
        let began_at = now_ms();
        let from = began_at - 30_000;
        let struck = futures::future::try_join_all(round.iter().map(|fault| cluster.strike(*fault)));
        tokio::pin!(struck);
        let mut samples = Vec::new();
        let mut last = None;
        let mut healed: Option<(i64, i64)> = None;
        let counts_from = loop {
            tokio::select! {
                counts_from = &mut struck, if healed.is_none() => {
                    healed = Some((counts_from?.into_iter().max().unwrap_or(began_at), now_ms()));
                }
                () = sleep_ms(SAMPLE_MS) => {
                    let behind = self.behind(from).await;
                    samples.push((now_ms(), behind.is_none()));
                    last = behind.or(last);
                    if let Some((counts_from, healed_at)) = healed {
                        let done = samples.iter().rev().take(3).all(|(_, done)| *done);
                        if (done && now_ms() > healed_at + WATCH_MS) || now_ms() > healed_at + GIVE_UP_MS {
                            break counts_from;
                        }
                    }
                }
            }
        };
        let fault = Fault {
            what: round.iter().map(|fault| format!("{fault:?}")).collect::<Vec<_>>().join(" and "),
            kinds: round.iter().map(|fault| fault.kind()).collect(),
            began_at,
            counts_from,
            caught_up_at: progress::caught_up_at(&samples, counts_from),
            touches: round.iter().any(|fault| fault.touches()),
        };
        if fault.catch_up_ms().is_none_or(|ms| ms > CATCH_UP_MS_MAX) {
            eprintln!("slow to catch up: {} (last behind: {})", fault.what, last.unwrap_or_default());
        }
        Ok(fault)
    }

    /// Waits until every run has ended and nothing is behind, at most [`GIVE_UP_MS`] (I19).
    async fn settled(&self) {
        let until = now_ms() + GIVE_UP_MS;
        while now_ms() < until {
            let open = async {
                let mut connection = PgConnection::connect(&self.url).await?;
                let rows = record::rows(&mut connection, 0).await?;
                connection.close().await?;
                Ok::<_, anyhow::Error>(rows.iter().filter(|row| row.state.is_open()).count())
            };
            if matches!(open.await, Ok(0)) && self.behind(now_ms() - 60_000).await.is_none() {
                return;
            }
            sleep_ms(SAMPLE_MS).await;
        }
    }
}

fn free_port(net: Net) -> anyhow::Result<u16> {
    match net {
        Net::Spaces => Ok(5432),
        Net::Plain => Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()),
    }
}

/// The folder for logs and data, which the user postgres must be able to enter.
pub(crate) fn folder(seed: u64) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::env::temp_dir().join(format!("everytick-chaos-{seed}-{}", now_ms()));
    std::fs::create_dir(&folder)?;
    std::fs::create_dir(folder.join("postgres"))?;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}
