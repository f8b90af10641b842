//! What a run prints while it runs, for those who watch. Kept only while it runs: the tail that stays is the outcome's.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use everytick_domain::{ids::RunId, run::OUTPUT_TAIL_BYTES_MAX};
use tokio::sync::broadcast;

/// A watcher further behind than this misses chunks, and is told so; the run never waits for a watcher.
const CHUNKS_BEHIND_MAX: usize = 256;

/// The live output of the runs of this process.
#[derive(Clone, Debug, Default)]
pub struct LiveLogs(Arc<Mutex<HashMap<RunId, Log>>>);

#[derive(Debug)]
struct Log {
    tail: VecDeque<u8>,
    chunks: broadcast::Sender<Vec<u8>>,
}

impl LiveLogs {
    /// Opens the log of a run that starts; it closes when the guard is dropped.
    #[must_use]
    pub fn open(&self, run: RunId) -> LiveLog {
        let chunks = broadcast::channel(CHUNKS_BEHIND_MAX).0;
        let log = Log { tail: VecDeque::new(), chunks: chunks.clone() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(run, log);
        LiveLog { logs: self.clone(), run, chunks }
    }

    /// What was printed so far, and what will be; `None` when the run does not run here.
    #[must_use]
    pub fn watch(&self, run: RunId) -> Option<(Vec<u8>, broadcast::Receiver<Vec<u8>>)> {
        let logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.get(&run).map(|log| (log.tail.iter().copied().collect(), log.chunks.subscribe()))
    }
}

/// The writing end of one run's live output.
#[derive(Debug)]
pub struct LiveLog {
    logs: LiveLogs,
    run: RunId,
    chunks: broadcast::Sender<Vec<u8>>,
}

impl LiveLog {
    pub fn push(&self, chunk: &[u8]) {
        let mut logs = self.logs.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = logs.get_mut(&self.run).filter(|log| log.chunks.same_channel(&self.chunks)) {
            log.tail.extend(chunk);
            let excess = log.tail.len().saturating_sub(OUTPUT_TAIL_BYTES_MAX);
            log.tail.drain(..excess);
            // No watcher is not an error.
            let _ = log.chunks.send(chunk.to_vec());
        }
    }
}

impl Drop for LiveLog {
    fn drop(&mut self) {
        let mut logs = self.logs.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The next attempt at the same run may have opened its own by now.
        if logs.get(&self.run).is_some_and(|log| log.chunks.same_channel(&self.chunks)) {
            logs.remove(&self.run);
        }
    }
}
