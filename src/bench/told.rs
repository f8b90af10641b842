//! Whether the benchmark was told to end, by Ctrl-C, `timeout` or a service manager. One listener for the whole process: a signal
//! that comes between two measurements is heard too. It then takes away what it has made; a second signal ends it at once.

use std::sync::OnceLock;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// As shells report a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// Cancelled when the process is told to end. Listens from the first call on.
pub(super) fn told() -> anyhow::Result<&'static CancellationToken> {
    static TOLD: OnceLock<CancellationToken> = OnceLock::new();
    if let Some(told) = TOLD.get() {
        return Ok(told);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let told = CancellationToken::new();
    let heard = told.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if heard.is_cancelled() {
                    std::process::exit(INTERRUPTED);
                }
                heard.cancel();
            }
        });
    })?;
    Ok(TOLD.get_or_init(|| told))
}
