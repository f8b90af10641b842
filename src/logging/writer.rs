//! Writes log lines to stderr through a bounded queue and one thread.
//!
//! Logging a line never fails, never blocks and never panics. `tracing_subscriber` reports a failed write with `eprintln!`,
//! which panics when stderr is closed; so [`LogWriter`] always reports success. A full pipe without a reader blocks only the
//! thread. When the queue is full, lines are dropped, and the log reports how many.
//!
//! A blocked thread keeps stderr locked. Once the log has started, all other code writes through the queue, even the last
//! line before the process ends. A direct write to stderr would wait for that lock without a limit.

use std::{
    io::{self, Write},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

/// Limit of queued lines: about 2 MB at 200 bytes per line.
const QUEUE_LINES_MAX: usize = 10_000;
/// How long the end of the process waits for the last lines.
const FLUSH_MAX: Duration = Duration::from_secs(2);

static QUEUE: OnceLock<SyncSender<Entry>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Entry {
    Line(Vec<u8>),
    /// Signalled when all earlier lines are written.
    Flush(SyncSender<()>),
}

/// Starts the thread. A second call changes nothing.
pub(super) fn start() -> io::Result<()> {
    if QUEUE.get().is_some() {
        return Ok(());
    }
    let (sender, receiver) = sync_channel(QUEUE_LINES_MAX);
    thread::Builder::new().name("log".to_owned()).spawn(move || write_lines(&receiver, &mut Stderr))?;
    let _ = QUEUE.set(sender);
    Ok(())
}

/// Queues a line, or drops it if the queue is full.
pub(super) fn push(line: Vec<u8>) {
    let Some(queue) = QUEUE.get() else { return };
    if queue.try_send(Entry::Line(line)).is_err() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until the lines queued so far are written, for a bounded time.
pub(super) fn flush() {
    if let Some(queue) = QUEUE.get() {
        send_and_flush(queue, Vec::new(), FLUSH_MAX);
    }
}

/// Writes the last line of the process and waits for it, for a bounded time. Returns `false` if the log has not started.
pub(super) fn last_line(line: Vec<u8>) -> bool {
    let Some(queue) = QUEUE.get() else { return false };
    send_and_flush(queue, line, FLUSH_MAX);
    true
}

/// Sends from a separate thread, because a full queue blocks the sender. The caller waits at most `patience`.
fn send_and_flush(queue: &SyncSender<Entry>, line: Vec<u8>, patience: Duration) {
    let (queue, (done, written)) = (queue.clone(), sync_channel(1));
    let sender = thread::Builder::new().name("log-flush".to_owned()).spawn(move || {
        let sent = line.is_empty() || queue.send(Entry::Line(line)).is_ok();
        if sent {
            let _ = queue.send(Entry::Flush(done));
        }
    });
    if sender.is_ok() {
        let _ = written.recv_timeout(patience);
    }
}

fn write_lines(queue: &Receiver<Entry>, out: &mut impl Write) {
    while let Ok(entry) = queue.recv() {
        match entry {
            Entry::Line(line) => {
                let dropped = DROPPED.swap(0, Ordering::Relaxed);
                if dropped > 0 {
                    let _ = writeln!(out, "{dropped} log lines were dropped: the reader of the log was too slow");
                }
                // A failed write (closed pipe, full disk) must not stop the jobs.
                let _ = out.write_all(&line);
            }
            Entry::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// Locks stderr for each write and releases it, so that other code can write between lines.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The writer of the log layer. Each call writes one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        push(line.to_vec());
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_dropped_and_the_thread_continues() {
        let (queue, entries) = sync_channel(3);
        let (done, written) = sync_channel(1);
        for _ in 0..2 {
            queue.send(Entry::Line(b"lost\n".to_vec())).unwrap();
        }
        queue.send(Entry::Flush(done)).unwrap();
        drop(queue);
        write_lines(&entries, &mut Full);
        written.try_recv().unwrap();
    }

    #[test]
    fn the_last_line_waits_until_a_full_queue_has_space() {
        let (queue, entries) = sync_channel(1);
        queue.send(Entry::Line(b"first\n".to_vec())).unwrap();
        let writer = thread::spawn(move || {
            let mut written = Vec::new();
            write_lines(&entries, &mut written);
            written
        });
        send_and_flush(&queue, b"last\n".to_vec(), Duration::from_secs(60));
        drop(queue);
        assert_eq!(writer.join().unwrap(), b"first\nlast\n");
    }

    #[test]
    fn a_blocked_writer_delays_the_end_of_the_process_for_a_bounded_time() {
        let (queue, _entries) = sync_channel(1);
        queue.send(Entry::Line(b"first\n".to_vec())).unwrap();
        send_and_flush(&queue, b"last\n".to_vec(), Duration::from_millis(1));
    }
}
