//! A worker of the queue `emails`: `cargo run -p everytick-worker --example emails -- http://127.0.0.1:8640`. Ctrl-C completes the
//! runs in progress and stops.

use std::time::Duration;

use everytick_worker::{Context, Failure, Worker, WorkerError};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

#[derive(Deserialize)]
struct Email {
    to: String,
}

async fn send(context: Context) -> Result<String, Failure> {
    let email: Email = context.payload()?;
    if !email.to.contains('@') {
        return Err(Failure::for_good(format!("{:?} is not an email address", email.to)));
    }
    context.log(&format!("attempt {} at {}\n", context.run().attempt, email.to));
    tokio::select! {
        () = context.cancelled().cancelled() => Err(Failure::new("stopped")),
        () = tokio::time::sleep(Duration::from_millis(50)) => Ok(format!("sent to {}", email.to)),
    }
}

#[tokio::main]
async fn main() -> Result<(), WorkerError> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8640".to_owned());
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stopping.cancel();
        }
    });
    Worker::new(&server, "emails")?.concurrency(4).run(send, stop).await
}
