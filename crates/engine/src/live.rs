//! The output of a run while it is in progress, for users who follow it. The settlement stores the tail of the output. This
//! copy is dropped when the run ends.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use everytick_domain::{
    ids::RunId,
    output::{self, OUTPUT_TAIL_BYTES_MAX},
};
use tokio::sync::broadcast;

/// A reader that is further behind than this loses chunks and gets an error. The run never waits for a reader.
const CHUNKS_BEHIND_MAX: usize = 256;

/// The live output of the runs in this process.
#[derive(Clone, Debug, Default)]
pub struct LiveLogs(Arc<Mutex<Logs>>);

#[derive(Debug, Default)]
struct Logs {
    by_run: HashMap<RunId, Log>,
    opened: u64,
}

#[derive(Debug)]
struct Log {
    /// Distinguishes the logs of two attempts at the same run.
    number: u64,
    tail: VecDeque<u8>,
    /// Bytes before the tail that were dropped.
    missing: u64,
    /// Created for the first reader: most runs have none, and the channel uses more memory than everything else about a run.
    chunks: Option<broadcast::Sender<Vec<u8>>>,
}

impl LiveLogs {
    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the log of a run that starts. It closes when the guard is dropped.
    #[must_use]
    pub fn open(&self, run: RunId) -> LiveLog {
        let mut logs = self.logs();
        logs.opened += 1;
        let number = logs.opened;
        logs.by_run.insert(run, Log { number, tail: VecDeque::new(), missing: 0, chunks: None });
        LiveLog { logs: self.clone(), run, number }
    }

    /// The output so far, with a first line that states how many bytes are missing, and a receiver for what follows;
    /// `None` if the run is not in progress in this process.
    #[must_use]
    pub fn watch(&self, run: RunId) -> Option<(Vec<u8>, broadcast::Receiver<Vec<u8>>)> {
        let mut logs = self.logs();
        let log = logs.by_run.get_mut(&run)?;
        let chunks = log.chunks.get_or_insert_with(|| broadcast::channel(CHUNKS_BEHIND_MAX).0);
        let tail = output::mark(log.missing).into_bytes().into_iter().chain(log.tail.iter().copied());
        Some((tail.collect(), chunks.subscribe()))
    }
}

/// The writing end of one run's live output.
#[derive(Debug)]
pub struct LiveLog {
    logs: LiveLogs,
    run: RunId,
    number: u64,
}

impl LiveLog {
    pub fn push(&self, chunk: &[u8]) {
        let mut logs = self.logs.logs();
        if let Some(log) = logs.by_run.get_mut(&self.run).filter(|log| log.number == self.number) {
            log.tail.extend(chunk);
            let excess = log.tail.len().saturating_sub(OUTPUT_TAIL_BYTES_MAX);
            log.tail.drain(..excess);
            log.missing += excess as u64;
            if let Some(chunks) = &log.chunks {
                // It fails when there is no reader, which is not an error.
                let _ = chunks.send(chunk.to_vec());
            }
        }
    }
}

impl Drop for LiveLog {
    fn drop(&mut self) {
        let mut logs = self.logs.logs();
        // The next attempt at the same run may have opened its own log already.
        if logs.by_run.get(&self.run).is_some_and(|log| log.number == self.number) {
            logs.by_run.remove(&self.run);
        }
    }
}
