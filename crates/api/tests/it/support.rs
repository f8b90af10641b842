//! A server in the test process: the real router on a fresh store, called without a socket.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode},
};
use everytick_api::{Api, Auth, AuthMode, BYTES_IN_FLIGHT_MAX, Batches, Hosts, InFlight, Status, router};
use everytick_domain::{access::LifetimePolicy, ids::Incarnation, secret::OperatorKey, time::Span};
use everytick_engine::{
    Hints,
    commands::{Commands, Entropy},
    live::LiveLogs,
    secrets::Vault,
};
use everytick_sim::{Faults, SimStore};
use everytick_store::{Lease, Limits, NodeInfo, SqliteStore, Store, SystemClock};
use everytick_targets::{ShellSettings, TERM_GRACE, TargetSettings};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

pub(crate) struct Server {
    pub(crate) router: Router,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) live: LiveLogs,
    pub(crate) ready: Arc<AtomicBool>,
    pub(crate) dir: TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
    /// The answer as JSON, which must have this status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self.json()
    }
}

/// Counts up, so that ids differ and a test that fails once always fails.
struct Counting(AtomicU64);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let next = self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            chunk.copy_from_slice(&next.to_be_bytes()[..chunk.len()]);
        }
    }
}

fn targets(shell_enabled: bool) -> TargetSettings {
    let shell = shell_enabled.then_some(ShellSettings { grace: TERM_GRACE, owner: None });
    TargetSettings { shell, ..TargetSettings::default() }
}

fn vault() -> Option<Vault> {
    Vault::new("test", vec![OperatorKey::from_random([7; 32])])
}

struct Ready(Arc<AtomicBool>);

impl Status for Ready {
    fn ready(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) { Ok(()) } else { Err("the store is not open yet".to_owned()) }
    }
    fn node(&self) -> &str {
        "test-node"
    }
    fn version(&self) -> &str {
        "0.0.0"
    }
}

impl Server {
    pub(crate) async fn new() -> Self {
        Self::with_shell(true).await
    }

    pub(crate) async fn with_shell(shell_enabled: bool) -> Self {
        Self::with(shell_enabled, Span::seconds(1)).await
    }

    pub(crate) async fn with(shell_enabled: bool, min_interval: Span) -> Self {
        Self::build(shell_enabled, min_interval, BYTES_IN_FLIGHT_MAX, Auth::default()).await
    }

    pub(crate) async fn with_bytes_in_flight(bytes_max: usize) -> Self {
        Self::build(true, Span::seconds(1), bytes_max, Auth::default()).await
    }

    /// A server whose requests need credentials.
    pub(crate) async fn required() -> Self {
        Self::with_auth(Auth::new(AuthMode::Required, LifetimePolicy::default(), None)).await
    }

    pub(crate) async fn with_auth(auth: Auth) -> Self {
        Self::build(true, Span::seconds(1), BYTES_IN_FLIGHT_MAX, auth).await
    }

    /// A server on the simulated store, which passes each call to `faults`.
    pub(crate) fn simulated(faults: Arc<dyn Faults>) -> Self {
        Self::simulated_with(faults, Auth::default())
    }

    pub(crate) fn simulated_with(faults: Arc<dyn Faults>, auth: Auth) -> Self {
        let store = SimStore::new(Arc::new(SystemClock), Limits::default());
        let (api_store, store) = (Arc::new(store.connect(faults)), Arc::new(store));
        let targets = targets(true);
        Self::on(
            api_store,
            store,
            TempDir::new().unwrap(),
            targets,
            Span::seconds(1),
            BYTES_IN_FLIGHT_MAX,
            auth,
            vault(),
        )
    }

    /// The same on a PostgreSQL of its own, which lives as long as the second value.
    pub(crate) async fn required_on_postgres() -> (Self, everytick_store::conformance::server::Database) {
        use everytick_store::{
            PostgresStore,
            conformance::server::{Server as Postgres, options},
        };
        let database = Postgres::shared().blank().await;
        let store = PostgresStore::connect(&database.url, options(None), Limits::default()).await.unwrap();
        let (api_store, store) = (Arc::new(store.api_handle(4)), Arc::new(store));
        let auth = Auth::new(AuthMode::Required, LifetimePolicy::default(), None);
        let (dir, every) = (TempDir::new().unwrap(), Span::seconds(1));
        let server = Self::on(api_store, store, dir, targets(true), every, BYTES_IN_FLIGHT_MAX, auth, vault());
        (server, database)
    }

    /// A server whose operator has no key file.
    pub(crate) async fn without_keys() -> Self {
        Self::opened(targets(true), None).await
    }

    /// A server that refuses new credentials in jobs.
    pub(crate) async fn refusing_inline_secrets() -> Self {
        Self::opened(TargetSettings { refuse_inline_secrets: true, ..targets(true) }, vault()).await
    }

    async fn opened(targets: TargetSettings, vault: Option<Vault>) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("everytick.db");
        let store = SqliteStore::open(path, Arc::new(SystemClock), Limits::default()).await.unwrap();
        let (api_store, store) = (Arc::new(store.api_handle()), Arc::new(store));
        let (every, bytes) = (Span::seconds(1), BYTES_IN_FLIGHT_MAX);
        Self::on(api_store, store, dir, targets, every, bytes, Auth::default(), vault)
    }

    async fn build(shell_enabled: bool, min_interval: Span, bytes_in_flight_max: usize, auth: Auth) -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("everytick.db");
        let store = SqliteStore::open(path, Arc::new(SystemClock), Limits::default()).await.unwrap();
        // As in a node, the API has its own handle to the store.
        let (api_store, store) = (Arc::new(store.api_handle()), Arc::new(store));
        Self::on(api_store, store, dir, targets(shell_enabled), min_interval, bytes_in_flight_max, auth, vault())
    }

    #[expect(clippy::too_many_arguments, reason = "each constructor chooses some of them")]
    fn on(
        api_store: Arc<dyn Store>,
        store: Arc<dyn Store>,
        dir: TempDir,
        targets: TargetSettings,
        min_interval: Span,
        bytes_in_flight_max: usize,
        auth: Auth,
        vault: Option<Vault>,
    ) -> Self {
        let live = LiveLogs::default();
        let commands = Commands::new(api_store, Hints::default(), Arc::new(Counting(AtomicU64::new(1))), live.clone());
        let ready = Arc::new(AtomicBool::new(true));
        let api = Api {
            commands: commands.with_vault(vault).into(),
            metrics_text: Arc::new(|| "everytick_ticks_total 7\n".to_owned()),
            status: Arc::new(Ready(ready.clone())),
            targets,
            min_interval,
            history: Span::days(90),
            auth,
            batches: Batches::default(),
            in_flight: InFlight::new(bytes_in_flight_max),
            hosts: Hosts { ports: vec![8640], ..Hosts::default() },
        };
        Self { router: router(api), store, live, ready, dir }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    /// Sends a request as a correct client does: JSON, from this machine.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<String>,
    ) -> Answer {
        self.send(request(method, path, headers, body)).await
    }
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], "").await
    }
    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, &[], text_of(&body)).await
    }
    pub(crate) async fn make(&self, name: &str) -> Value {
        self.post("/api/v1/jobs", job(name)).await.expect(201)
    }

    pub(crate) async fn join(&self) -> Lease {
        self.join_as(&NodeInfo::named("test-node"), 1).await
    }

    /// Makes a node live. Each node needs its own number.
    pub(crate) async fn join_as(&self, node: &NodeInfo, number: u128) -> Lease {
        let incarnation = Incarnation::from_uuid(format!("{number:032x}").parse().unwrap());
        self.store.join(node, incarnation, Span::minutes(10)).await.unwrap().0
    }
}

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<String>) -> Request<Body> {
    let body = body.into();
    let mut builder = Request::builder().method(method).uri(path);
    let given = |name: &str| headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
    if !given("host") {
        builder = builder.header("host", "127.0.0.1:8640");
    }
    if !body.is_empty() && !given("content-type") {
        builder = builder.header("content-type", "application/json");
    }
    for (name, value) in headers.iter().filter(|(_, value)| *value != NONE) {
        builder = builder.header(*name, *value);
    }
    builder.body(Body::from(body)).unwrap()
}

/// As the value of a header: do not send the header.
pub(crate) const NONE: &str = "(none)";

pub(crate) fn text_of(body: &Value) -> String {
    if body.is_null() { String::new() } else { body.to_string() }
}

/// A valid definition.
pub(crate) fn job(name: &str) -> Value {
    json!({
        "name": name,
        "schedule": {"cron": "0 2 * * *", "timezone": "America/New_York"},
        "target": {"http": {"url": "https://example.org/hook"}},
    })
}

/// A valid definition with one field set.
pub(crate) fn with(field: &str, value: Value) -> Value {
    let mut job = job("case");
    let path = field.split('.').fold(String::new(), |path, part| format!("{path}/{part}"));
    let (parent, last) = path.rsplit_once('/').unwrap();
    let mut at = &mut job;
    for part in parent.split('/').filter(|part| !part.is_empty()) {
        if at[part].is_null() {
            at[part] = json!({});
        }
        at = &mut at[part];
    }
    at[last] = value;
    job
}
