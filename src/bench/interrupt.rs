//! Listens for SIGINT and SIGTERM. One listener serves the whole process, so that a signal between two measurements is not
//! lost. After the first signal the benchmark removes its schema or files; a second signal ends it at once.

use std::sync::OnceLock;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit code that shells use for an interrupted program (128 + SIGINT).
const INTERRUPTED: i32 = 130;

/// The token that the first signal cancels. Listens from the first call on.
pub(super) fn interrupted() -> anyhow::Result<&'static CancellationToken> {
    static TOKEN: OnceLock<CancellationToken> = OnceLock::new();
    if let Some(token) = TOKEN.get() {
        return Ok(token);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let token = CancellationToken::new();
    let first = token.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if first.is_cancelled() {
                    std::process::exit(INTERRUPTED);
                }
                first.cancel();
            }
        });
    })?;
    Ok(TOKEN.get_or_init(|| token))
}
