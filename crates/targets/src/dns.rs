//! Looks names up for webhooks, and gives out only addresses that the policy accepts: the address checked is the one dialled.
//! A lookup has a time limit, names and zones have limits on lookups in flight, and answers are cached, failures too. So a zone
//! whose servers are silent delays webhooks to that zone only. `/etc/hosts` and `localhost` work as they do for other programs.

use std::{
    collections::HashMap,
    error::Error,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    AddressPolicy, OwnAddresses,
    webhook::{OUT_OF_DESCRIPTORS, is_out_of_descriptors},
};

/// How long a lookup may take, and how long it may wait for its turn.
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);
/// A query ends after this. The resolver repeats the packet meanwhile, as packets get lost, and listens for the answer to each;
/// a second query would drop the late answer to the first. Below the limit of the lookup, so that the resolver takes note of
/// a silent server.
const QUERY_LIMIT: Duration = Duration::from_millis(1_900);
/// Servers asked at the same time: resolv.conf has at most three.
const SERVERS_AT_ONCE: usize = 3;
/// An answer is used for as long as it says, within these bounds.
const POSITIVE_MIN: Duration = Duration::from_secs(5);
const POSITIVE_MAX: Duration = Duration::from_secs(60);
/// A failure is not asked for again within this time.
const NEGATIVE: Duration = Duration::from_secs(5);
/// Lookups in flight: of one name, of one zone, and in all.
const LOOKUPS_PER_NAME_MAX: usize = 4;
const LOOKUPS_PER_ZONE_MAX: usize = 8;
const LOOKUPS_MAX: usize = 16;
/// A zone is silent after this many lookups without an answer, one after another.
const SILENT_LOOKUPS: u32 = 4;
/// Names and zones that are remembered.
const NAMES_MAX: usize = 10_000;
/// The system's settings and hosts file are read again this often.
const SETTINGS_KEPT: Duration = Duration::from_secs(60);

/// Why a lookup gave no address.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unresolved {
    /// The name has none, or its servers gave none. Cached for a while, so it can be returned more than once.
    #[error("{0}")]
    Failed(Arc<str>),
    /// This node could not ask, which says nothing about the name. Nothing was sent to the receiver.
    #[error("{0}")]
    NotAsked(&'static str),
}

type Answer = Result<Arc<[IpAddr]>, Unresolved>;

/// Given to the HTTP client. Clones share their lookups.
#[derive(Clone)]
pub(crate) struct CheckedResolver {
    policy: Arc<AddressPolicy>,
    /// Addresses of which one port is refused, where the request is for that port.
    own: Option<OwnAddresses>,
    lookups: Arc<Lookups>,
}

impl CheckedResolver {
    /// Asks these servers; the system's where there are none.
    pub(crate) fn new(policy: Arc<AddressPolicy>, servers: Vec<SocketAddr>) -> Self {
        let (names, zones) = (Gates::new(LOOKUPS_PER_NAME_MAX), Gates::new(LOOKUPS_PER_ZONE_MAX));
        let all = Arc::new(Semaphore::new(LOOKUPS_MAX));
        let lookups = Lookups { servers, names, zones, all, known: Mutex::default(), resolver: Mutex::default() };
        Self { policy, own: None, lookups: Arc::new(lookups) }
    }

    /// The same, for requests to a port at which nodes of the cluster listen.
    pub(crate) fn beside(&self, own: Option<&OwnAddresses>) -> Self {
        Self { own: own.cloned(), ..self.clone() }
    }
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let Self { policy, own, lookups } = self.clone();
        Box::pin(async move {
            let found = lookups.addresses(&name.as_str().to_ascii_lowercase()).await?;
            if let Some(own) = &own {
                found.iter().try_for_each(|address| own.check_ip(*address))?;
            }
            let found = found.iter().map(|address| SocketAddr::new(*address, 0));
            let addresses: Addrs = Box::new(dialable(&policy, found)?.into_iter());
            Ok(addresses)
        })
    }
}

/// The addresses that may be dialled; when none may, the reason of the first.
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
        None => Err(io::Error::other("the name has no address").into()),
    }
}

struct Lookups {
    servers: Vec<SocketAddr>,
    names: Gates,
    zones: Gates,
    all: Arc<Semaphore>,
    known: Mutex<Known>,
    resolver: Mutex<Option<(Arc<TokioResolver>, Instant)>>,
}

impl Lookups {
    async fn addresses(&self, name: &str) -> Answer {
        if let Some(answer) = self.known().answer(name, now()) {
            return answer;
        }
        let Ok(_permits) = tokio::time::timeout(LOOKUP_LIMIT, self.permits(name)).await else {
            return Err(Unresolved::Failed("other lookups of its zone are not answered".into()));
        };
        // It may have been looked up meanwhile.
        if let Some(answer) = self.known().answer(name, now()) {
            return answer;
        }
        let (answer, until, silent) = self.ask(name).await?;
        self.known().remember(name, answer.clone(), until, silent, now());
        answer
    }

    /// One permit of each kind, the narrowest first: who waits for a name takes none from other names.
    async fn permits(&self, name: &str) -> [Option<OwnedSemaphorePermit>; 3] {
        let name_permit = self.names.enter(name).await;
        let zone_permit = self.zones.enter(zone(name)).await;
        [name_permit, zone_permit, Arc::clone(&self.all).acquire_owned().await.ok()]
    }

    /// The answer, until when it is used, and whether the servers were silent. An error where this node could not ask.
    async fn ask(&self, name: &str) -> Result<(Answer, Instant, bool), Unresolved> {
        let failed = |why: &str, silent| Ok((Err(Unresolved::Failed(why.into())), now() + NEGATIVE, silent));
        let resolver = match self.resolver() {
            Ok(resolver) => resolver,
            Err(error @ Unresolved::NotAsked(_)) => return Err(error),
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
            NetError::Timeout => failed("its name server gave no answer within 2s", true),
            error => failed(&error.to_string(), true),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The system's settings may change while the process runs.
    fn resolver(&self) -> Result<Arc<TokioResolver>, Unresolved> {
        let mut kept = self.resolver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((resolver, until)) = &*kept
            && now() < *until
        {
            return Ok(Arc::clone(resolver));
        }
        // Without a descriptor the resolver would be made without the hosts file, and kept.
        if !has_descriptor() {
            return Err(NO_DESCRIPTOR);
        }
        let made = resolver(&self.servers).map_err(|error| Unresolved::Failed(error.to_string().into()))?;
        let resolver = Arc::new(made);
        *kept = Some((Arc::clone(&resolver), now() + SETTINGS_KEPT));
        Ok(resolver)
    }
}

const NO_DESCRIPTOR: Unresolved = Unresolved::NotAsked(OUT_OF_DESCRIPTORS);

fn names_no_descriptor(error: &NetError) -> bool {
    matches!(error, NetError::Io(error) if is_out_of_descriptors(error.as_ref()))
}

/// Whether this process can open one more file. The resolver asks several servers, for two kinds of address, and reports only
/// one of their errors: a lookup may fail for want of a descriptor and give another reason.
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
    options.attempts = 0; // beyond the first
    options.num_concurrent_reqs = SERVERS_AT_ONCE;
    // Ours is in front of the limits.
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

#[expect(clippy::disallowed_methods, reason = "how old a cached address is; nothing is scheduled by it")]
fn now() -> Instant {
    Instant::now()
}

/// What answers for a name: all behind its first dot, or the name itself where only a top-level domain is, or one like `co.uk`:
/// strangers must not share a zone.
fn zone(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    let shared = |zone: &str| match zone.split_once('.') {
        None => true,
        Some((first, rest)) => first.len() <= 3 && !rest.contains('.'),
    };
    name.split_once('.').map(|(_, zone)| zone).filter(|zone| !shared(zone)).unwrap_or(name)
}

/// So many lookups under one key at a time.
struct Gates {
    most: usize,
    open: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

impl Gates {
    fn new(most: usize) -> Self {
        Self { most, open: Mutex::default() }
    }

    async fn enter(&self, key: &str) -> Option<OwnedSemaphorePermit> {
        let gate = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.len() >= NAMES_MAX {
                // Nobody is in those, or waits there.
                open.retain(|_, gate| Arc::strong_count(gate) > 1);
            }
            Arc::clone(open.entry(key.into()).or_insert_with(|| Arc::new(Semaphore::new(self.most))))
        };
        gate.acquire_owned().await.ok()
    }
}

/// What was found out about names and zones.
#[derive(Default)]
struct Known {
    names: HashMap<Box<str>, (Answer, Instant)>,
    /// How many lookups in a row had no answer, and until when that counts.
    zones: HashMap<Box<str>, (u32, Instant)>,
}

impl Known {
    fn answer(&self, name: &str, now: Instant) -> Option<Answer> {
        if let Some((answer, until)) = self.names.get(name)
            && now < *until
        {
            return Some(answer.clone());
        }
        let (silent, until) = self.zones.get(zone(name))?;
        (*silent >= SILENT_LOOKUPS && now < *until)
            .then(|| Err(Unresolved::Failed(format!("the name servers of {} do not answer", zone(name)).into())))
    }

    fn remember(&mut self, name: &str, answer: Answer, until: Instant, silent: bool, now: Instant) {
        if self.names.len() >= NAMES_MAX {
            self.names.retain(|_, (_, until)| now < *until);
        }
        if self.names.len() < NAMES_MAX {
            self.names.insert(name.into(), (answer, until));
        }
        if !silent {
            self.zones.remove(zone(name));
            return;
        }
        if self.zones.len() >= NAMES_MAX {
            self.zones.retain(|_, (_, until)| now < *until);
        }
        if self.zones.len() < NAMES_MAX {
            let (count, counts_until) = self.zones.entry(zone(name).into()).or_insert((0, until));
            (*count, *counts_until) = (count.saturating_add(1), until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refused;

    #[test]
    fn a_zone_is_what_lies_behind_the_first_dot() {
        for (name, expected) in [
            ("a.b.example.org", "b.example.org"),
            ("www.example.org", "example.org"),
            ("www.example.org.", "example.org"),
            ("example.org", "example.org"),
            ("shop.co.uk", "shop.co.uk"),
            ("www.shop.co.uk", "shop.co.uk"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(zone(name), expected);
        }
    }

    #[test]
    fn a_zone_is_silent_after_some_lookups_and_not_for_long() {
        let (mut known, start) = (Known::default(), now());
        let failed = || Err(Unresolved::Failed("no answer".into()));
        let silent = start + NEGATIVE;
        for n in 0..SILENT_LOOKUPS {
            assert!(known.answer("new.dead.example", start).is_none(), "{n} lookups had no answer");
            known.remember(&format!("n{n}.dead.example"), failed(), silent, true, start);
        }
        assert!(known.answer("new.dead.example", start).is_some_and(|answer| answer.is_err()));
        assert!(known.answer("new.live.example", start).is_none());
        assert!(known.answer("new.dead.example", silent).is_none(), "it is tried again");
        let found: Arc<[IpAddr]> = Arc::new([IpAddr::from([192, 0, 2, 1])]);
        known.remember("n9.dead.example", Ok(found), start + POSITIVE_MAX, false, start);
        assert!(known.answer("new.dead.example", start).is_none(), "one answer is enough");
    }

    #[test]
    fn a_query_outlasts_a_server_that_answers_after_a_second_and_a_half() {
        let mut options = ResolverOpts::default();
        set_limits(&mut options);
        assert!(options.timeout > Duration::from_millis(1_500), "{:?}", options.timeout);
        assert!(options.timeout * (1 + u32::try_from(options.attempts).unwrap()) < LOOKUP_LIMIT);
    }

    #[test]
    fn an_error_of_the_resolver_names_a_missing_descriptor_by_its_code() {
        use rustix::io::Errno;
        let io = |errno: Errno| NetError::from(io::Error::from_raw_os_error(errno.raw_os_error()));
        assert!(names_no_descriptor(&io(Errno::MFILE)) && names_no_descriptor(&io(Errno::NFILE)));
        assert!(!names_no_descriptor(&io(Errno::CONNREFUSED)) && !names_no_descriptor(&NetError::Timeout));
        assert!(has_descriptor());
    }

    #[test]
    fn of_a_names_addresses_only_the_good_are_dialled() {
        let policy = AddressPolicy::default();
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let found = all(&["127.0.0.1:0", "8.8.8.8:0", "[::ffff:10.0.0.1]:0", "[2606:4700::1]:0", "169.254.169.254:0"]);
        assert_eq!(dialable(&policy, found.into_iter()).unwrap(), all(&["8.8.8.8:0", "[2606:4700::1]:0"]));

        let refused = dialable(&policy, all(&["10.0.0.1:0", "127.0.0.1:0"]).into_iter()).unwrap_err();
        assert_eq!(refused.downcast_ref::<Refused>().unwrap().address.to_string(), "10.0.0.1");
        assert_eq!(dialable(&policy, std::iter::empty()).unwrap_err().to_string(), "the name has no address");
    }
}
