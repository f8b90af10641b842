//! A connection to the server that goes silent: it is not closed, but no data passes any more.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use everytick_domain::{ids::TenantId, time::Span};
use everytick_store::{
    ManualClock, NewJob, NodeInfo, PostgresOptions, PostgresStore, RowAnswer, Store, StoreError,
    conformance::{
        LIMITS, START, actor, born, incarnation, job_id, s,
        server::{Database, Server, options},
        spec, ticks,
    },
};
use sqlx::{Connection, PgConnection};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    net::{TcpListener, UnixStream},
    sync::watch,
};

/// A proxy in front of the server that forwards all data until its connections are silenced.
struct Way {
    port: u16,
    /// The last sender is for future connections; the others have been triggered.
    silent: Arc<Mutex<Vec<watch::Sender<()>>>>,
}

impl Way {
    async fn open(database: &Database) -> Self {
        let (_, folder) = database.url.split_once("?host=").unwrap();
        let socket = PathBuf::from(folder).join(".s.PGSQL.5432");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silent = Arc::new(Mutex::new(vec![watch::channel(()).0]));
        let way = Self { port, silent: silent.clone() };
        tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { return };
                let server = UnixStream::connect(&socket).await.unwrap();
                let silenced = silent.lock().unwrap_or_else(PoisonError::into_inner).last().unwrap().subscribe();
                let ((from_client, to_client), (from_server, to_server)) =
                    (tokio::io::split(client), tokio::io::split(server));
                tokio::spawn(forward(from_client, to_server, silenced.clone()));
                tokio::spawn(forward(from_server, to_client, silenced));
            }
        });
        way
    }

    fn url(&self, database: &Database) -> String {
        let (front, _) = database.url.split_once('?').unwrap();
        front.replace("@localhost/", &format!("@127.0.0.1:{}/", self.port))
    }

    /// Stops forwarding on the existing connections. Later connections work normally.
    fn silence(&self) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.last().unwrap().send_replace(());
        silent.push(watch::channel(()).0);
    }
}

async fn forward<R, W>(mut from: ReadHalf<R>, mut to: WriteHalf<W>, mut silenced: watch::Receiver<()>)
where
    R: tokio::io::AsyncRead,
    W: tokio::io::AsyncWrite,
{
    let mut buffer = vec![0; 65_536];
    loop {
        let read = tokio::select! {
            biased;
            _ = silenced.changed() => std::future::pending().await,
            read = from.read(&mut buffer) => read,
        };
        match read {
            Ok(count) if count > 0 && to.write_all(&buffer[..count]).await.is_ok() => {}
            _ => return,
        }
    }
}

/// A short timeout keeps the test short. With one connection, a connection that is never released is noticed at once.
fn impatient(clock: Arc<ManualClock>) -> PostgresOptions {
    let timeout = Duration::from_secs(1);
    PostgresOptions { connections_max: 1, statement_timeout: timeout, ..options(Some(clock)) }
}

/// The limit is for hanging calls, not for slow ones.
async fn in_the_end<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.unwrap()
}

async fn until_heard<T>(mut ask: impl AsyncFnMut() -> everytick_store::Result<T>) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(matches!(error, StoreError::Failed { .. }), "{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_closed_and_replaced() {
    let database = Server::shared().migrated().await;
    let way = Way::open(&database).await;
    let clock = Arc::new(ManualClock::at(START));
    let store = PostgresStore::connect(&way.url(&database), impatient(clock.clone()), LIMITS).await.unwrap();
    let store = Arc::new(store);
    let (lease, _) = store.join(&NodeInfo::named("a"), incarnation(1), Span::days(1)).await.unwrap();
    let new = NewJob { id: job_id(TenantId::DEFAULT, "j"), spec: spec("j") };
    let job = store.create_jobs(TenantId::DEFAULT, &actor(), vec![new], None).await.unwrap().remove(0).unwrap().job;
    clock.set(s(10));
    store.now().await.unwrap();

    // During a write statement: it waits for a lock, and its answer never arrives.
    let batch = [ticks(&job, 1, vec![born(&job, 10)])];
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    sqlx::raw_sql("begin; select * from leases for update").execute(&mut admin).await.unwrap();
    let recording = tokio::spawn({
        let (store, lease, batch) = (store.clone(), lease.clone(), batch.clone());
        async move { store.record(&lease, &batch).await }
    });
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut admin).await.unwrap() == 0 {
        assert!(!recording.is_finished(), "it waits for the lease");
    }
    way.silence();
    sqlx::raw_sql("commit").execute(&mut admin).await.unwrap();
    let answer = in_the_end(recording).await.unwrap();
    assert!(matches!(answer, Err(StoreError::Unsure { .. })), "{answer:?}");

    // The only slot of the pool becomes free, and the uncommitted tick has no row.
    let loaded = in_the_end(until_heard(async || store.load_jobs(&[job.id]).await)).await;
    assert_eq!((loaded.len(), loaded[0].last_tick), (1, None));
    assert_eq!(store.record(&lease, &batch).await.unwrap().jobs.concat(), [RowAnswer::Inserted]);

    // Also a read on a connection that goes silent while idle in the pool.
    in_the_end(async {
        while store.pool().num_idle() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    way.silence();
    let answer = in_the_end(store.load_jobs(&[job.id])).await;
    assert!(matches!(answer, Err(StoreError::Failed { .. })), "{answer:?}");
    assert_eq!(in_the_end(until_heard(async || store.load_jobs(&[job.id]).await)).await.len(), 1);
}

/// A caller gives up while `begin` is in flight: sqlx knows no transaction, but the server has begun one.
#[tokio::test]
async fn a_transaction_that_sqlx_does_not_know_is_not_left_in_the_pool() {
    let database = Server::shared().migrated().await;
    let clock = Arc::new(ManualClock::at(START));
    let store = PostgresStore::connect(&database.url, impatient(clock), LIMITS).await.unwrap();
    for _ in 0..20 {
        let mut connection = in_the_end(store.pool().acquire()).await.unwrap();
        sqlx::raw_sql("begin isolation level repeatable read read only").execute(&mut *connection).await.unwrap();
        drop(connection);
        in_the_end(store.join(&NodeInfo::named("a"), incarnation(1), Span::days(1))).await.unwrap();
    }
}
