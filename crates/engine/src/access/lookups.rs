//! Looks up credentials (tokens, or sessions) that are not in the cache. One query runs at a time, for at most 500 of
//! them. Those that arrive during a query wait for the next one. So the load on the database depends on its speed, not
//! on the number of requests. While at most 500 credentials wait, each waits for at most two queries.

use std::{
    collections::{HashMap, VecDeque},
    error::Error as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everytick_domain::time::DbTime;
use everytick_store::{Result, StoreError};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::reader::Record;

/// Maximum number of credentials in one query.
const BATCH_MAX: usize = 500;
/// Maximum number of credentials that wait for a query.
const WAITING_MAX: usize = 20_000;
/// A request waits at most this long for its credential.
const LOOKUP_MAX: Duration = Duration::from_secs(5);

/// The credential, if there is one, and the time of the database.
type Found<R> = (Option<R>, DbTime);
/// Reads credentials from the store.
pub(super) type Read<R> =
    Box<dyn Fn(Vec<<R as Record>::Hash>) -> BoxFuture<'static, Result<(Vec<R>, DbTime)>> + Send + Sync>;

pub(super) struct Lookups<R: Record>(Arc<Inner<R>>);

impl<R: Record> Clone for Lookups<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Inner<R: Record> {
    read: Read<R>,
    /// The time between a query and the next one.
    pause: Duration,
    waiting: Mutex<Waiting<R>>,
}

struct Waiting<R: Record> {
    requests: VecDeque<Request<R>>,
    /// Whether the task that sends the queries is running.
    has_task: bool,
}

struct Request<R: Record> {
    hash: R::Hash,
    answer: oneshot::Sender<Result<Found<R>>>,
}

impl<R: Record> Lookups<R> {
    pub(super) fn new(read: Read<R>, pause: Duration) -> Self {
        let waiting = Mutex::new(Waiting { requests: VecDeque::new(), has_task: false });
        Self(Arc::new(Inner { read, pause, waiting }))
    }

    pub(super) async fn find(&self, hash: R::Hash) -> Result<Found<R>> {
        let (answer, found) = oneshot::channel();
        {
            let mut waiting = self.0.waiting();
            if waiting.requests.len() >= WAITING_MAX {
                return Err(StoreError::Busy { doing: R::DOING });
            }
            waiting.requests.push_back(Request { hash, answer });
            if !std::mem::replace(&mut waiting.has_task, true) {
                tokio::spawn(Serving { inner: self.0.clone(), is_done: false }.run());
            }
        }
        match tokio::time::timeout(LOOKUP_MAX, found).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Err(failed(R::DOING, "the query ended without an answer")),
            Err(_) => Err(failed(R::DOING, "the database did not answer in time")),
        }
    }
}

impl<R: Record> Inner<R> {
    fn waiting(&self) -> MutexGuard<'_, Waiting<R>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next credentials to look up. If none waits, marks the task as ended under the same lock. So the next
    /// one starts a new task and is not missed.
    fn next(&self) -> Option<Vec<Request<R>>> {
        let mut waiting = self.waiting();
        // Drop credentials whose request has ended.
        waiting.requests.retain(|request| !request.answer.is_closed());
        let count = waiting.requests.len().min(BATCH_MAX);
        waiting.has_task = count > 0;
        (count > 0).then(|| waiting.requests.drain(..count).collect())
    }

    async fn find(&self, requests: Vec<Request<R>>) {
        let read = (self.read)(requests.iter().map(|request| request.hash).collect());
        let found = tokio::time::timeout(LOOKUP_MAX, read).await;
        match found.unwrap_or_else(|_| Err(failed(R::DOING, "the database did not answer in time"))) {
            Ok((found, now)) => {
                let found: HashMap<R::Hash, R> = found.into_iter().map(|record| (record.hash(), record)).collect();
                for Request { hash, answer } in requests {
                    let _ = answer.send(Ok((found.get(&hash).cloned(), now)));
                }
            }
            Err(error) => {
                requests.into_iter().for_each(|request| drop(request.answer.send(Err(copy_of(R::DOING, &error)))));
            }
        }
    }
}

/// The task that sends the queries, as long as credentials wait.
struct Serving<R: Record> {
    inner: Arc<Inner<R>>,
    is_done: bool,
}

impl<R: Record> Serving<R> {
    async fn run(mut self) {
        while let Some(requests) = self.inner.next() {
            self.inner.find(requests).await;
            if !self.inner.pause.is_zero() {
                tokio::time::sleep(self.inner.pause).await;
            }
        }
        self.is_done = true;
    }
}

/// After a panic, the next request starts another task.
impl<R: Record> Drop for Serving<R> {
    fn drop(&mut self) {
        if !self.is_done {
            self.inner.waiting().has_task = false;
        }
    }
}

fn failed(doing: &'static str, why: &str) -> StoreError {
    StoreError::Failed { doing, source: why.into() }
}

/// A copy of the error, for each request of a failed query. `StoreError` cannot be cloned.
fn copy_of(doing: &'static str, error: &StoreError) -> StoreError {
    match error {
        StoreError::Busy { doing } => StoreError::Busy { doing },
        error => failed(doing, &error.source().map_or_else(|| error.to_string(), ToString::to_string)),
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::access::TokenHash;
    use everytick_store::TokenRecord;
    use futures::FutureExt as _;
    use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

    use super::*;

    const PAUSE: Duration = Duration::from_millis(20);

    fn hash(n: usize) -> TokenHash {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        TokenHash::from_bytes(bytes)
    }

    /// A store without tokens. It records the size of each query, and answers a query when it gets a permit.
    #[derive(Clone, Default)]
    struct Empty {
        queries: Arc<Mutex<Vec<usize>>>,
        answers: Arc<Option<Semaphore>>,
    }

    impl Empty {
        fn lookups(&self, pause: Duration) -> Lookups<TokenRecord> {
            let store = self.clone();
            let read = move |hashes: Vec<TokenHash>| {
                let store = store.clone();
                async move {
                    store.queries.lock().unwrap().push(hashes.len());
                    if let Some(answers) = store.answers.as_ref() {
                        answers.acquire().await.unwrap().forget();
                    }
                    Ok((Vec::new(), DbTime::EPOCH))
                }
                .boxed()
            };
            Lookups::new(Box::new(read), pause)
        }

        fn sizes(&self) -> Vec<usize> {
            self.queries.lock().unwrap().clone()
        }
    }

    fn find(lookups: &Lookups<TokenRecord>, hashes: std::ops::Range<usize>) -> JoinSet<Result<Found<TokenRecord>>> {
        let mut asking = JoinSet::new();
        for n in hashes {
            let lookups = lookups.clone();
            asking.spawn(async move { lookups.find(hash(n)).await });
        }
        asking
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_that_arrive_during_a_query_share_the_next_ones() {
        let store = Empty { answers: Arc::new(Some(Semaphore::new(0))), ..Empty::default() };
        let lookups = store.lookups(Duration::ZERO);
        let mut first = find(&lookups, 0..1);
        while store.sizes().is_empty() {
            tokio::task::yield_now().await;
        }
        let mut others = find(&lookups, 1..1 + 2 * BATCH_MAX);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(store.sizes(), [1], "one query at a time");
        store.answers.as_ref().as_ref().unwrap().add_permits(3);
        assert_eq!(first.join_next().await.unwrap().unwrap().unwrap().0, None);
        while let Some(found) = others.join_next().await {
            assert_eq!(found.unwrap().unwrap().0, None);
        }
        assert_eq!(store.sizes(), [1, BATCH_MAX, BATCH_MAX]);
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "virtual time")]
    async fn a_pause_follows_each_query_and_a_lookup_after_it_is_answered() {
        let (store, begin) = (Empty::default(), Instant::now());
        let lookups = store.lookups(PAUSE);
        for n in 0..10 {
            lookups.find(hash(n)).await.unwrap();
        }
        assert!(begin.elapsed() >= PAUSE * 9, "{:?}", begin.elapsed());
        tokio::time::sleep(PAUSE * 2).await;
        lookups.find(hash(10)).await.unwrap();
        assert_eq!(store.sizes(), [1; 11]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_without_an_answer_fails_and_blocks_no_later_one() {
        let store = Empty { answers: Arc::new(Some(Semaphore::new(0))), ..Empty::default() };
        let lookups = store.lookups(Duration::ZERO);
        assert!(matches!(lookups.find(hash(1)).await, Err(StoreError::Failed { .. })));
        // Two permits: the first query times out at the same moment and may take one of them.
        store.answers.as_ref().as_ref().unwrap().add_permits(2);
        lookups.find(hash(2)).await.unwrap();
    }
}
