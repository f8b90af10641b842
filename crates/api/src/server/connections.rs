//! The open connections: their number, their addresses, which are idle, and which serve a long request (a waiting claim, a live
//! log). At the limit, a new connection replaces the connection that is idle longest. If no connection is idle, it
//! replaces the connection of the claim that has waited longest.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ipnet::IpNet;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{ServerLimits, phase::Phase};
use crate::in_flight::Charged;

/// `min(this, connections_max / 4)` connections are reserved for short requests, so that health checks always find a
/// connection.
const SHORT_CONNECTIONS: usize = 8;
/// Minimum wait of a claim before the server may end it. Its worker claims again at once, so claims would otherwise end each
/// other.
const WAIT_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Connections {
    open: Mutex<Open>,
    /// Notified when a connection has ended or become idle.
    changed: Notify,
    max: usize,
    long_max: usize,
    per_peer_max: usize,
    proxies: &'static [IpNet],
}

#[derive(Debug, Default)]
struct Open {
    count: usize,
    /// How many of them are being closed.
    closing: usize,
    /// Connections that wait for a request, in the order in which they became idle.
    idle: BTreeMap<u64, Idle>,
    /// Long requests in the order of their start.
    long: BTreeMap<u64, Long>,
    peers: HashMap<IpAddr, usize>,
    last: u64,
}

#[derive(Debug)]
struct Idle {
    peer: Option<IpAddr>,
    evicted: CancellationToken,
}

#[derive(Debug)]
struct Long {
    since: Instant,
    /// Ends the wait; `None` when only the client can end the request.
    ended: Option<CancellationToken>,
    evicted: CancellationToken,
}

impl Connections {
    pub(super) fn new(limits: ServerLimits) -> Self {
        Self {
            open: Mutex::default(),
            changed: Notify::new(),
            max: limits.connections_max,
            long_max: limits.connections_max - SHORT_CONNECTIONS.min(limits.connections_max / 4),
            per_peer_max: limits.connections_per_peer_max,
            proxies: limits.proxies,
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the limit allows one more connection. Closes another connection if possible.
    pub(super) async fn wait_for_capacity(&self) {
        while self.is_full() && !self.close_one(now()) {
            let _ = tokio::time::timeout(WAIT_MIN, self.wait_for_change()).await;
        }
    }

    /// Closes the connection that has been idle longest. If none is idle, ends the claim that has waited longest, with an empty
    /// answer, and closes its connection. `false` when neither exists.
    pub(super) fn close_one(&self, now: Instant) -> bool {
        self.close_oldest_idle() || self.open().end_oldest_wait(now)
    }

    fn is_full(&self) -> bool {
        let open = self.open();
        open.count - open.closing >= self.max
    }

    /// Waits until a connection has ended or become idle since the last call.
    pub(super) async fn wait_for_change(&self) {
        self.changed.notified().await;
    }

    /// Closes the connection that has been idle longest. `false` when none is idle.
    fn close_oldest_idle(&self) -> bool {
        let mut open = self.open();
        let oldest = open.idle.keys().next().copied();
        oldest.is_some_and(|oldest| open.evict(oldest))
    }

    /// Counts a new connection from an address. `None` when the address has too many connections and none of them is idle.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Arc<Connection>> {
        let is_proxy = |peer: &IpAddr| self.proxies.iter().any(|network| network.contains(peer));
        self.admit_from(Some(peer.to_canonical()).filter(|peer| !peer.is_loopback() && !is_proxy(peer)))
    }

    /// Counts a new connection of this machine.
    pub(super) fn admit_local(self: &Arc<Self>) -> Option<Arc<Connection>> {
        self.admit_from(None)
    }

    fn admit_from(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Arc<Connection>> {
        let mut open = self.open();
        if let Some(peer) = peer {
            if open.peers.get(&peer).is_some_and(|count| *count >= self.per_peer_max) {
                let oldest = open.idle.iter().find(|(_, idle)| idle.peer == Some(peer)).map(|(order, _)| *order)?;
                open.evict(oldest);
            }
            *open.peers.entry(peer).or_default() += 1;
        }
        open.count += 1;
        let evicted = CancellationToken::new();
        let order = open.begin_idle(peer, &evicted);
        let state = AtomicU64::new(Phase::New as u64);
        let (order, charges) = (Mutex::new(order), Mutex::default());
        Some(Arc::new(Connection { connections: self.clone(), peer, evicted, order, charges, state }))
    }
}

impl Open {
    fn begin_idle(&mut self, peer: Option<IpAddr>, evicted: &CancellationToken) -> u64 {
        self.last += 1;
        self.idle.insert(self.last, Idle { peer, evicted: evicted.clone() });
        self.last
    }

    fn evict(&mut self, order: u64) -> bool {
        let Some(idle) = self.idle.remove(&order) else { return false };
        idle.evicted.cancel();
        self.closing += 1;
        true
    }

    fn end_oldest_wait(&mut self, now: Instant) -> bool {
        let may_end =
            |long: &Long| long.ended.is_some() && !long.evicted.is_cancelled() && now >= long.since + WAIT_MIN;
        let Some((_, long)) = self.long.iter().find(|(_, long)| may_end(long)) else { return false };
        // It counts as closed from now on, so the new connection does not wait until the answer is sent.
        long.evicted.cancel();
        if let Some(ended) = &long.ended {
            ended.cancel();
        }
        self.closing += 1;
        true
    }
}

/// One connection, from accept to close.
#[derive(Debug)]
pub(super) struct Connection {
    connections: Arc<Connections>,
    /// `None` for a loopback address or a Unix socket.
    peer: Option<IpAddr>,
    evicted: CancellationToken,
    /// Its key in `Open::idle` while it is idle.
    order: Mutex<u64>,
    /// Charges of answers that are not sent yet.
    charges: Mutex<Vec<Charged>>,
    /// The number of phase changes and the phase, in one number. Only the connection's own task changes it.
    state: AtomicU64,
}

impl Connection {
    /// The phase, and a number that differs after each change.
    pub(super) fn state(&self) -> (Phase, u64) {
        let state = self.state.load(Ordering::Relaxed);
        (Phase::of(state), state)
    }

    pub(super) fn set(&self, phase: Phase) {
        let (before, state) = self.state();
        if before == phase {
            return;
        }
        self.state.store(Phase::next(state, phase), Ordering::Relaxed);
        if phase == Phase::Idle {
            self.charges().clear();
        }
        match phase {
            Phase::Busy => {
                let order = *self.order();
                self.connections.open().idle.remove(&order);
            }
            // The server is already closing this connection. The request arrived just before, so the
            // connection ends after its answer.
            Phase::Idle if self.evicted.is_cancelled() => {}
            Phase::Idle => {
                *self.order() = self.connections.open().begin_idle(self.peer, &self.evicted);
                self.connections.changed.notify_one();
            }
            Phase::New | Phase::Head | Phase::Answered => {}
        }
    }

    /// Keeps the charge until the answer is sent: a complete answer still occupies hyper's buffers.
    pub(super) fn keep(&self, charge: Charged) {
        self.charges().push(charge);
    }

    fn charges(&self) -> MutexGuard<'_, Vec<Charged>> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self) -> MutexGuard<'_, u64> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the client waits for an answer.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.state().0, Phase::Busy | Phase::Answered)
    }

    /// Whether the client has no request in progress.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state().0, Phase::New | Phase::Idle)
    }

    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

/// A request that may occupy its connection for long. Dropping it ends the count.
#[derive(Debug, Default)]
pub(crate) struct LongRequest {
    /// `None` when the router is called without a server.
    counted: Option<(Arc<Connection>, u64)>,
    ended: CancellationToken,
}

impl LongRequest {
    /// Resolves when the server needs the connection. The request must then end with an empty answer.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Drop for LongRequest {
    fn drop(&mut self) {
        if let Some((connection, number)) = &self.counted {
            connection.connections.open().long.remove(number);
        }
    }
}

impl Connection {
    /// Counts a long request. `None` when only the connections for short requests are left. With `waits`, it may be ended early.
    pub(super) fn begin_long(self: &Arc<Self>, waits: bool, now: Instant) -> Option<LongRequest> {
        let mut open = self.connections.open();
        if open.long.len() >= self.connections.long_max {
            return None;
        }
        let ended = CancellationToken::new();
        open.last += 1;
        let number = open.last;
        let long = Long { since: now, ended: waits.then(|| ended.clone()), evicted: self.evicted.clone() };
        open.long.insert(number, long);
        drop(open);
        Some(LongRequest { counted: Some((self.clone(), number)), ended })
    }
}

#[expect(clippy::disallowed_methods, reason = "measures how long a client has waited; schedules nothing")]
pub(super) fn now() -> Instant {
    Instant::now()
}

impl Drop for Connection {
    fn drop(&mut self) {
        let order = *self.order();
        let mut open = self.connections.open();
        open.count -= 1;
        if self.evicted.is_cancelled() {
            open.closing -= 1;
        }
        open.idle.remove(&order);
        if let Some(peer) = self.peer
            && let Some(count) = open.peers.get_mut(&peer)
        {
            *count -= 1;
            if *count == 0 {
                open.peers.remove(&peer);
            }
        }
        drop(open);
        self.connections.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_of_a_proxy_are_not_limited_as_those_of_one_client() {
        let proxies: &'static [IpNet] = Vec::leak(vec!["10.0.0.0/24".parse().unwrap()]);
        let limits = ServerLimits { connections_per_peer_max: 1, proxies, ..ServerLimits::default() };
        let connections = Arc::new(Connections::new(limits));
        for (peer, admitted) in [("10.0.0.5", true), ("::ffff:10.0.0.5", true), ("10.0.1.5", false)] {
            let busy = connections.admit(peer.parse().unwrap()).unwrap();
            let _request = busy.begin_request();
            assert_eq!(connections.admit(peer.parse().unwrap()).is_some(), admitted, "{peer}");
        }
    }

    fn connections(connections_max: usize, connections_per_peer_max: usize) -> Arc<Connections> {
        let limits = ServerLimits { connections_max, connections_per_peer_max, ..ServerLimits::default() };
        Arc::new(Connections::new(limits))
    }

    #[test]
    fn at_the_limit_per_address_a_new_connection_closes_the_longest_idle_one() {
        let connections = connections(100, 2);
        let (near, far) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let other = connections.admit(far).unwrap();
        let (first, second) = (connections.admit(near).unwrap(), connections.admit(near).unwrap());
        first.set(Phase::Busy);
        let third = connections.admit(near).unwrap();
        assert!(second.evicted.is_cancelled() && !first.evicted.is_cancelled() && !other.evicted.is_cancelled());
        drop(second);
        third.set(Phase::Busy);
        assert!(connections.admit(near).is_none(), "both connections of this address are busy");
        assert!(connections.admit(far).is_some());
        drop(first);
        assert!(connections.admit(near).is_some());
    }

    #[test]
    fn loopback_addresses_have_no_limit_per_address() {
        let connections = connections(100, 1);
        let here =
            ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.0.0.1"].map(|peer| connections.admit(peer.parse().unwrap()));
        assert!(here.iter().all(Option::is_some));
    }

    #[tokio::test]
    async fn at_the_limit_the_longest_idle_connection_is_closed_and_no_busy_one() {
        let connections = connections(2, 100);
        let peer = "127.0.0.1".parse().unwrap();
        let (first, second) = (connections.admit(peer).unwrap(), connections.admit(peer).unwrap());
        first.set(Phase::Busy);
        first.set(Phase::Answered);
        first.set(Phase::Idle);
        connections.wait_for_capacity().await;
        assert!(second.evicted.is_cancelled() && !first.evicted.is_cancelled(), "the first became idle later");
        let third = connections.admit(peer).unwrap();
        drop(second);
        first.set(Phase::Busy);
        third.set(Phase::Busy);
        assert!(!connections.close_one(now()));
        let waits = {
            let connections = connections.clone();
            tokio::spawn(async move { connections.wait_for_capacity().await })
        };
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(first);
        waits.await.unwrap();
        drop(third);
        let open = connections.open();
        assert!(open.count == 0 && open.closing == 0 && open.idle.is_empty() && open.peers.is_empty());
    }

    #[tokio::test]
    async fn the_longest_waiting_claim_is_ended_when_no_connection_is_idle() {
        let (connections, start) = (connections(3, 100), now());
        let busy = [(); 3].map(|()| connections.admit("127.0.0.1".parse().unwrap()).unwrap());
        busy.iter().for_each(|connection| connection.set(Phase::Busy));
        let log = busy[0].begin_long(false, start).unwrap();
        let first = busy[1].begin_long(true, start).unwrap();
        let second = busy[2].begin_long(true, start).unwrap();
        assert!(!connections.close_one(start), "both claims have just begun to wait");
        assert!(connections.close_one(start + WAIT_MIN));
        first.ended().await;
        assert!(!second.ended.is_cancelled() && !log.ended.is_cancelled());
        assert!(busy[1].evicted.is_cancelled() && !connections.is_full(), "it counts as closed at once");
        drop(first);
        assert!(connections.close_one(start + WAIT_MIN) && second.ended.is_cancelled());
        drop((second, log));
        assert!(!connections.close_one(start + WAIT_MIN), "a live log is never ended");
        drop(busy);
        let open = connections.open();
        assert!(open.count == 0 && open.closing == 0 && open.long.is_empty());
    }

    #[test]
    fn an_answer_counts_as_in_flight_until_it_is_sent() {
        let (connections, in_flight) = (connections(9, 9), crate::InFlight::new(1));
        let connection = connections.admit("127.0.0.1".parse().unwrap()).unwrap();
        for end in [Phase::Idle, Phase::Answered] {
            connection.set(Phase::Busy);
            connection.keep(Charged::new(in_flight.count(1)));
            connection.set(Phase::Answered);
            assert!(in_flight.check().is_err(), "the answer is complete but not sent");
            connection.set(end);
        }
        drop(connection);
        in_flight.check().unwrap();
    }

    #[test]
    fn some_connections_are_reserved_for_short_requests() {
        let peer = "127.0.0.1".parse().unwrap();
        for (max, long) in [(1, 1), (4, 3), (32, 24), (64, 56)] {
            let connections = connections(max, 100);
            let open: Vec<_> = (0..max).map(|_| connections.admit(peer).unwrap()).collect();
            let begun: Vec<_> = open.iter().filter_map(|connection| connection.begin_long(true, now())).collect();
            assert_eq!(begun.len(), long, "of {max}");
            drop(begun);
            assert!(open[0].begin_long(false, now()).is_some());
        }
    }
}
