//! Limits of requests by caller: a bucket of permits that refills at a steady rate (GCRA), one for each key.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Maximum number of keys in a limiter. A full limiter removes the keys with a full bucket. A removed key starts again with a full
/// bucket, so the removal changes nothing for it.
const KEYS_MAX: usize = 10_000;

/// How many requests may come at once, and how long it takes until one more is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    burst: u32,
    every: Duration,
}

impl Rate {
    pub(crate) const fn per_second(rate: u32, burst: u32) -> Self {
        Self { burst, every: Duration::from_nanos(1_000_000_000 / rate as u64) }
    }
    pub(crate) const fn one_per(every: Duration, burst: u32) -> Self {
        Self { burst, every }
    }
}

#[derive(Debug)]
pub(crate) struct Limiter<K> {
    rate: Rate,
    /// When the bucket of each key will be full again.
    full_at: Mutex<HashMap<K, Instant>>,
}

impl<K: Hash + Eq> Limiter<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, full_at: Mutex::default() }
    }

    /// How long a request of this key must wait; zero if it need not. Takes no permit.
    pub(crate) fn wait(&self, key: &K, now: Instant) -> Duration {
        let full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        full_at.get(key).map_or(Duration::ZERO, |full_at| self.wait_of(*full_at, now))
    }

    /// Takes a permit, or returns how long the request must wait.
    pub(crate) fn take(&self, key: K, now: Instant) -> Result<(), Duration> {
        let mut all = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KEYS_MAX {
            all.retain(|_, full_at| *full_at > now);
        }
        if all.len() >= KEYS_MAX && !all.contains_key(&key) {
            // So many keys at once are an attack from many addresses: refuse further ones for a moment.
            return Err(self.rate.every);
        }
        let full_at = all.entry(key).or_insert(now);
        let wait = self.wait_of(*full_at, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        *full_at = (*full_at).max(now) + self.rate.every;
        Ok(())
    }

    fn wait_of(&self, full_at: Instant, now: Instant) -> Duration {
        let missing = full_at.saturating_duration_since(now) + self.rate.every;
        missing.saturating_sub(self.rate.every * self.rate.burst)
    }
}

#[expect(clippy::disallowed_methods, reason = "measures the rate of requests; schedules nothing")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_request_per_period() {
        let (limiter, start) = (Limiter::new(Rate::one_per(Duration::from_secs(6), 10)), now());
        for n in 0..10 {
            assert_eq!(limiter.take("a", start), Ok(()), "{n}");
        }
        assert_eq!(limiter.take("a", start), Err(Duration::from_secs(6)));
        assert_eq!(limiter.wait(&"a", start), Duration::from_secs(6));
        assert_eq!(limiter.take("b", start), Ok(()), "another key has its own bucket");
        let later = start + Duration::from_secs(6);
        assert_eq!(limiter.wait(&"a", later), Duration::ZERO);
        assert_eq!((limiter.take("a", later), limiter.take("a", later)), (Ok(()), Err(Duration::from_secs(6))));
    }

    #[test]
    fn reading_the_wait_takes_no_permit() {
        let (limiter, start) = (Limiter::new(Rate::per_second(50, 1)), now());
        assert_eq!(limiter.wait(&1, start), Duration::ZERO);
        assert_eq!(limiter.wait(&1, start), Duration::ZERO);
        assert_eq!((limiter.take(1, start), limiter.take(1, start)), (Ok(()), Err(Duration::from_millis(20))));
    }

    #[test]
    fn the_number_of_keys_is_limited() {
        let (limiter, start) = (Limiter::new(Rate::one_per(Duration::from_secs(1), 2)), now());
        for key in 0..KEYS_MAX {
            assert_eq!(limiter.take(key, start), Ok(()));
        }
        assert!(limiter.take(KEYS_MAX, start).is_err());
        assert_eq!(limiter.take(0, start), Ok(()), "a known key is served");
        assert_eq!(limiter.take(KEYS_MAX, start + Duration::from_secs(2)), Ok(()), "full buckets are forgotten");
    }
}
