//! Resolves names for webhooks and returns only addresses that the policy accepts. So the client dials the
//! checked address.
//! A lookup has a time limit. Answers are cached, failures too. `/etc/hosts` and `localhost` work as for other programs.
//!
//! Concurrent lookups are limited. A name has one of three reputations, each with its own permits:
//!
//! | reputation | names | permits |
//! |---|---|---|
//! | proven | the last quick answer is at most 2 days old, and fewer than 4 lookups since then were slow or unanswered | 6 |
//! | new | all others | 6, at most 4 of one zone |
//! | suspect | the last lookup was slow or unanswered, at most 60 s ago | 4 |
//!
//! So dead names do not delay names that resolve, for any number of dead names and zones. After their first lookup they do not
//! delay new names either. The zone is only a guess; if it is wrong, the limits by reputation still apply.

mod known;

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
};
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

use self::known::{Answer, Known, NAMES_MAX, NEGATIVE, Pace, Reputation, zone};
use super::{
    deliver::{OUT_OF_DESCRIPTORS, is_out_of_descriptors},
    own::OwnAddresses,
};
use crate::AddressPolicy;

/// Time limit of a lookup, and of its wait for a permit.
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);
/// Time limit of a query. Packets get lost, so the resolver repeats the packet in that time and accepts the answer to each. A
/// second query would drop a late answer to the first. It is below the limit of the lookup, so that the resolver itself notices
/// a server that does not answer.
const QUERY_LIMIT: Duration = Duration::from_millis(1_900);
/// How many servers are queried at the same time; resolv.conf has at most three.
const SERVERS_AT_ONCE: usize = 3;
/// Bounds for the time to live of an answer.
const POSITIVE_MIN: Duration = Duration::from_secs(5);
const POSITIVE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of concurrent lookups: per name, per zone (new names only), and per reputation; 16 in total.
const LOOKUPS_PER_NAME_MAX: usize = 4;
const LOOKUPS_PER_ZONE_MAX: usize = 4;
const LOOKUPS_PROVEN_MAX: usize = 6;
const LOOKUPS_NEW_MAX: usize = 6;
const LOOKUPS_SUSPECT_MAX: usize = 4;
/// The system's resolver settings and hosts file are reloaded this often.
const SETTINGS_RELOADED_EVERY: Duration = Duration::from_secs(60);

/// Why a lookup gave no address.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unresolved {
    /// The name has no address, or its servers returned none. The error is cached, so it can be returned more than once.
    #[error("{0}")]
    Failed(Arc<str>),
    /// This node could not look the name up, which proves nothing about the name. Nothing was sent to the receiver.
    #[error("{0}")]
    NotQueried(&'static str),
}

/// The resolver of the HTTP client. Clones share their lookups.
#[derive(Clone)]
pub(crate) struct CheckedResolver {
    policy: Arc<AddressPolicy>,
    /// The cluster's own addresses, which are refused. `None` for a port on which no node serves its API.
    own: Option<OwnAddresses>,
    lookups: Arc<Lookups>,
}

impl CheckedResolver {
    /// Queries these servers, or the servers of the system if the list is empty.
    pub(crate) fn new(policy: Arc<AddressPolicy>, servers: Vec<SocketAddr>) -> Self {
        Self { policy, own: None, lookups: Arc::new(Lookups::new(servers)) }
    }

    /// The same resolver, which refuses the addresses of the cluster's nodes too.
    pub(crate) fn refusing(&self, own: Option<&OwnAddresses>) -> Self {
        Self { own: own.cloned(), ..self.clone() }
    }
}

impl fmt::Debug for CheckedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedResolver").finish_non_exhaustive()
    }
}

impl CheckedResolver {
    /// The addresses of a name that may be dialled, without a port.
    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let found = self.lookups.addresses(&name.to_ascii_lowercase()).await?;
        if let Some(own) = &self.own {
            found.iter().try_for_each(|address| own.check_ip(*address))?;
        }
        dialable(&self.policy, found.iter().map(|address| SocketAddr::new(*address, 0)))
    }
}

impl Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move { Ok(resolver.addresses(name.as_str()).await?.into_iter()) })
    }
}

/// The addresses that may be dialled. If no address may be, returns the reason for the first refusal.
fn dialable(
    policy: &AddressPolicy,
    found: impl Iterator<Item = SocketAddr>,
) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
    let mut first_refused = None;
    let mut good = Vec::new();
    for address in found {
        match policy.check(address.ip()) {
            Ok(()) => good.push(address),
            Err(refused) => first_refused = first_refused.or(Some(refused)),
        }
    }
    match first_refused {
        _ if !good.is_empty() => Ok(good),
        Some(refused) => Err(refused.into()),
        None => Err(Unresolved::Failed("the name has no address".into()).into()),
    }
}

struct Lookups {
    servers: Vec<SocketAddr>,
    names: KeyedPermits,
    zones: KeyedPermits,
    proven: Arc<Semaphore>,
    new: Arc<Semaphore>,
    suspect: Arc<Semaphore>,
    known: Mutex<Known>,
    resolver: Mutex<Option<(Arc<TokioResolver>, Instant)>>,
}

impl Lookups {
    fn new(servers: Vec<SocketAddr>) -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        Self {
            servers,
            names: KeyedPermits::new(LOOKUPS_PER_NAME_MAX),
            zones: KeyedPermits::new(LOOKUPS_PER_ZONE_MAX),
            proven: permits(LOOKUPS_PROVEN_MAX),
            new: permits(LOOKUPS_NEW_MAX),
            suspect: permits(LOOKUPS_SUSPECT_MAX),
            known: Mutex::default(),
            resolver: Mutex::default(),
        }
    }

    async fn addresses(&self, name: &str) -> Answer {
        if let Some(answer) = self.known().answer(name, now()) {
            return answer;
        }
        let Ok(_permits) = tokio::time::timeout(LOOKUP_LIMIT, self.permits(name)).await else {
            let mut known = self.known();
            return known.answer(name, now()).unwrap_or_else(|| Err(known.without_permit(name, now())));
        };
        // Another lookup of the name may have ended during the wait.
        if let Some(answer) = self.known().answer(name, now()) {
            return answer;
        }
        let begun = now();
        let (answer, until, silent) = self.query(name).await?;
        let pace = Pace::of(silent, now().saturating_duration_since(begun));
        self.known().remember(name, answer.clone(), until, pace, now());
        answer
    }

    /// One permit of each kind, the narrowest first: a lookup that waits for its name blocks no permit that other names need.
    async fn permits(&self, name: &str) -> [Option<OwnedSemaphorePermit>; 3] {
        let name_permit = self.names.acquire(name).await;
        let reputation = self.known().reputation(name, now());
        let (zone_permit, permits) = match reputation {
            Reputation::Proven => (None, &self.proven),
            Reputation::New => (self.zones.acquire(zone(name)).await, &self.new),
            Reputation::Suspect => (None, &self.suspect),
        };
        [name_permit, zone_permit, Arc::clone(permits).acquire_owned().await.ok()]
    }

    /// The answer, until when it is valid, and whether the servers did not answer. `Err` when this node could not send the query.
    async fn query(&self, name: &str) -> Result<(Answer, Instant, bool), Unresolved> {
        let failed = |why: &str, silent| Ok((Err(Unresolved::Failed(why.into())), now() + NEGATIVE, silent));
        let resolver = match self.resolver() {
            Ok(resolver) => resolver,
            Err(error @ Unresolved::NotQueried(_)) => return Err(error),
            Err(Unresolved::Failed(why)) => return failed(&why, false),
        };
        let error = match tokio::time::timeout(LOOKUP_LIMIT, resolver.lookup_ip(name)).await {
            Ok(Ok(found)) => {
                let addresses: Arc<[IpAddr]> = found.iter().collect();
                let until = found.valid_until().clamp(now() + POSITIVE_MIN, now() + POSITIVE_MAX);
                return Ok((Ok(addresses), until, false));
            }
            Ok(Err(error)) => error,
            Err(_) => NetError::Timeout,
        };
        if names_no_descriptor(&error) || !has_descriptor() {
            return Err(NO_DESCRIPTOR);
        }
        match error {
            error if error.is_no_records_found() => failed("the name has no address", false),
            NetError::Timeout => failed("its name server did not answer within 2s", true),
            error => failed(&error.to_string(), true),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rebuilt every [`SETTINGS_RELOADED_EVERY`], because the system's settings may change while the process runs.
    fn resolver(&self) -> Result<Arc<TokioResolver>, Unresolved> {
        let mut cached = self.resolver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((resolver, until)) = &*cached
            && now() < *until
        {
            return Ok(Arc::clone(resolver));
        }
        // Without a free descriptor, the new resolver would lack the hosts file until it is rebuilt.
        if !has_descriptor() {
            return Err(NO_DESCRIPTOR);
        }
        let new = resolver(&self.servers).map_err(|error| Unresolved::Failed(error.to_string().into()))?;
        let resolver = Arc::new(new);
        *cached = Some((Arc::clone(&resolver), now() + SETTINGS_RELOADED_EVERY));
        Ok(resolver)
    }
}

const NO_DESCRIPTOR: Unresolved = Unresolved::NotQueried(OUT_OF_DESCRIPTORS);

fn names_no_descriptor(error: &NetError) -> bool {
    matches!(error, NetError::Io(error) if is_out_of_descriptors(error.as_ref()))
}

/// Whether this process can open one more file. The resolver queries several servers for two kinds of address and reports only
/// one error. So a lookup that lacked a descriptor may report another reason.
fn has_descriptor() -> bool {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).err().is_none_or(|error| !is_out_of_descriptors(&error))
}

fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, Box<dyn Error + Send + Sync>> {
    let mut builder = if servers.is_empty() {
        TokioResolver::builder_tokio()?
    } else {
        let servers = servers.iter().map(name_server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    set_limits(builder.options_mut());
    Ok(builder.build()?)
}

fn set_limits(options: &mut ResolverOpts) {
    options.timeout = QUERY_LIMIT;
    options.attempts = 0; // retries after the first
    options.num_concurrent_reqs = SERVERS_AT_ONCE;
    // `Known` caches answers: a cached name needs no permit.
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Always;
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut udp = ConnectionConfig::udp();
    udp.port = address.port();
    let mut tcp = ConnectionConfig::tcp();
    tcp.port = address.port();
    NameServerConfig::new(address.ip(), true, vec![udp, tcp])
}

#[expect(clippy::disallowed_methods, reason = "measures how old a cached address is; schedules nothing")]
fn now() -> Instant {
    Instant::now()
}

/// Limits the concurrent lookups per key.
struct KeyedPermits {
    per_key: usize,
    semaphores: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

impl KeyedPermits {
    fn new(per_key: usize) -> Self {
        Self { per_key, semaphores: Mutex::default() }
    }

    async fn acquire(&self, key: &str) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut semaphores = self.semaphores.lock().unwrap_or_else(PoisonError::into_inner);
            if semaphores.len() >= NAMES_MAX {
                // Remove semaphores without a lookup and without a waiter.
                semaphores.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
            }
            let new = || Arc::new(Semaphore::new(self.per_key));
            Arc::clone(semaphores.entry(key.into()).or_insert_with(new))
        };
        semaphore.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{
        known::tests::{failed, found},
        *,
    };
    use crate::Refused;

    /// Whether a lookup of the name can start now. Its permits are added to `begun`.
    fn begins(lookups: &Lookups, name: &str, begun: &mut Vec<[Option<OwnedSemaphorePermit>; 3]>) -> bool {
        use std::{pin::pin, task::Context, task::Poll, task::Waker};
        match pin!(lookups.permits(name)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permits) => begun.push(permits),
            Poll::Pending => return false,
        }
        true
    }

    #[test]
    fn dead_names_of_any_zone_do_not_delay_names_that_resolve() {
        let (lookups, start) = (Lookups::new(Vec::new()), now());
        lookups.known().remember("ok.example", found(), start, Pace::Quick, start);
        for n in 0..20 {
            lookups.known().remember(&format!("a.d{n}.example"), failed(), start, Pace::Silent, start);
        }
        let mut begun = Vec::new();
        let suspects = (0..20).filter(|n| begins(&lookups, &format!("a.d{n}.example"), &mut begun)).count();
        assert_eq!(suspects, LOOKUPS_SUSPECT_MAX);
        assert!(begins(&lookups, "first.new.example", &mut begun), "a new name gets a permit");
        let new = (0..20).filter(|n| begins(&lookups, &format!("a.n{n}.example"), &mut begun)).count();
        assert_eq!(new, LOOKUPS_NEW_MAX - 1);
        assert!(begins(&lookups, "ok.example", &mut begun));
    }

    #[test]
    fn one_zone_cannot_use_all_permits_for_new_names() {
        let (lookups, mut begun) = (Lookups::new(Vec::new()), Vec::new());
        let of_one = (0..20).filter(|n| begins(&lookups, &format!("n{n}.dead.example"), &mut begun)).count();
        assert_eq!(of_one, LOOKUPS_PER_ZONE_MAX);
        assert!(begins(&lookups, "a.live.example", &mut begun));
    }

    #[test]
    fn a_query_waits_longer_than_1500_ms_and_less_than_its_lookup() {
        let mut options = ResolverOpts::default();
        set_limits(&mut options);
        assert!(options.timeout > Duration::from_millis(1_500), "{:?}", options.timeout);
        assert!(options.timeout * (1 + u32::try_from(options.attempts).unwrap()) < LOOKUP_LIMIT);
    }

    #[test]
    fn a_missing_descriptor_is_recognised_by_its_error_code() {
        use rustix::io::Errno;
        let io = |errno: Errno| NetError::from(io::Error::from_raw_os_error(errno.raw_os_error()));
        assert!(names_no_descriptor(&io(Errno::MFILE)) && names_no_descriptor(&io(Errno::NFILE)));
        assert!(!names_no_descriptor(&io(Errno::CONNREFUSED)) && !names_no_descriptor(&NetError::Timeout));
        assert!(has_descriptor());
    }

    #[test]
    fn only_the_allowed_addresses_of_a_name_are_dialled() {
        let policy = AddressPolicy::default();
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let found = all(&["127.0.0.1:0", "8.8.8.8:0", "[::ffff:10.0.0.1]:0", "[2606:4700::1]:0", "169.254.169.254:0"]);
        assert_eq!(dialable(&policy, found.into_iter()).unwrap(), all(&["8.8.8.8:0", "[2606:4700::1]:0"]));

        let refused = dialable(&policy, all(&["10.0.0.1:0", "127.0.0.1:0"]).into_iter()).unwrap_err();
        assert_eq!(refused.downcast_ref::<Refused>().unwrap().address.to_string(), "10.0.0.1");
        assert_eq!(dialable(&policy, std::iter::empty()).unwrap_err().to_string(), "the name has no address");
    }
}
