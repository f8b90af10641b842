//! `bench sink`: answers webhooks. It is a separate process, so that its CPU time does not count as CPU time of the node.

use std::io::Read as _;

use axum::{Router, body::Bytes};
use clap::Args;
use tokio::net::TcpListener;

use crate::output::{Format, Output};

pub(super) const AFTER_HELP: &str = "\
Example:
  everytick bench sink

Prints the address that it listens on.";

#[derive(Debug, Args)]
pub(crate) struct SinkFlags {}

impl SinkFlags {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            Output::new(Format::Table).line(&listener.local_addr()?.to_string())?;
            let router = Router::new().fallback(|_: Bytes| async {});
            // The parent process has the other end of stdin. The pipe closes when the parent ends, even by a kill.
            let parent_ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
            tokio::select! {
                served = axum::serve(listener, router) => served?,
                _ = parent_ended => {}
            }
            anyhow::Ok(())
        })
    }
}
