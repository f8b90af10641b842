//! The real binary on a free port with its own data. It is killed when this process ends.

use std::{process::Stdio, time::Duration};

use anyhow::Context;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::binary;

pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Server {
    pub(crate) async fn start(dir: &std::path::Path) -> anyhow::Result<Self> {
        Self::serve(&["--node-name", "soak", "--data-dir", &dir.display().to_string()]).await
    }

    pub(crate) async fn serve(flags: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(binary()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--allow-webhook-range", "127.0.0.0/8"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .env("EVERYTICK_LOG_LEVEL", "warn")
            .kill_on_drop(true)
            .spawn()
            .context("could not start the binary; build it first, as scripts/soak does")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let url = tokio::time::timeout(Duration::from_secs(30), async {
            while let Some(line) = lines.next_line().await? {
                if let Some(url) = line.trim().strip_prefix("listening on ") {
                    return Ok(url.to_owned());
                }
            }
            anyhow::bail!("the server exited before it listened")
        })
        .await??;
        // Keep reading, so that the server never blocks on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, url })
    }

    /// CPU time used so far. Linux counts it in hundredths of a second.
    pub(crate) fn cpu_ms(&self) -> anyhow::Result<u64> {
        let pid = self.child.id().context("the server has exited")?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Ok((ticks(11) + ticks(12)) * 10)
    }

    /// Peak memory so far.
    pub(crate) fn memory_mb(&self) -> anyhow::Result<u64> {
        let pid = self.child.id().context("the server has exited")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in its status")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1_024)
    }

    /// Kills the server without warning, as a power failure would.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("could not kill the server")
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().context("the server has exited")?;
        Command::new("kill").arg(pid.to_string()).status().await?;
        tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await??;
        Ok(())
    }
}
