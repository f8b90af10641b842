//! The campaign's own PostgreSQL, with fsync. The campaign crashes it; acknowledged writes must survive.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context;
use rustix::process::Signal;
use sqlx::{Connection, PgConnection};
use tokio::process::{Child, Command};

use crate::{
    common::{now_ms, sleep_ms},
    history::Offset,
    net::{Host, Net},
    process,
};

/// How long it may take to accept connections, also after a crash.
const START_MS_MAX: i64 = 60_000;
const STOP_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Postgres {
    net: Net,
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    child: Child,
    pub(crate) url: String,
}

impl Postgres {
    pub(crate) async fn start(net: Net, folder: &Path, port: u16) -> anyhow::Result<Self> {
        let programs = programs()?;
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        let owned = Command::new("chown").arg("postgres").args([folder, &data]).status().await?;
        anyhow::ensure!(owned.success(), "could not give the folder to the user postgres");
        let initdb = programs.join("initdb");
        let made = as_postgres(&mut Command::new("setpriv"))
            .arg(initdb)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "-D"])
            .arg(&data)
            .env("LC_ALL", "C")
            .current_dir(folder)
            .output()
            .await
            .context("could not run initdb")?;
        anyhow::ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let mut rules = fs::read_to_string(data.join("pg_hba.conf"))?;
        rules.push_str("host all all 10.99.0.0/24 trust\n");
        fs::write(data.join("pg_hba.conf"), rules)?;
        let url = format!("postgres://postgres@{}:{port}/postgres", net.database_address());
        let child = spawn(net, folder, &programs, port).await?;
        let server = Self { net, folder: folder.to_owned(), programs, port, child, url };
        server.wait_for_answer().await?;
        Ok(server)
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(tokio::time::timeout(Duration::from_secs(5), PgConnection::connect(&self.url)).await??)
    }

    async fn wait_for_answer(&self) -> anyhow::Result<()> {
        let until = now_ms() + START_MS_MAX;
        loop {
            match self.connect().await {
                Ok(connection) => return Ok(connection.close().await?),
                Err(error) if now_ms() > until => return Err(error).context("PostgreSQL does not answer"),
                Err(_) => sleep_ms(50).await,
            }
        }
    }

    async fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = spawn(self.net, &self.folder, &self.programs, self.port).await?;
        self.wait_for_answer().await
    }

    /// A fast shutdown: open transactions are rolled back, and everything is written to disk.
    pub(crate) async fn restart(&mut self, down_ms: i64) -> anyhow::Result<()> {
        process::end(&mut self.child, Signal::INT, STOP_MAX).await?;
        sleep_ms(down_ms).await;
        self.start_again().await
    }

    /// Kills all its processes, as a power failure would.
    pub(crate) async fn crash(&mut self, down_ms: i64) -> anyhow::Result<()> {
        process::kill_family(&mut self.child).await?;
        sleep_ms(down_ms).await;
        self.start_again().await
    }

    pub(crate) async fn pause(&mut self, ms: i64) -> anyhow::Result<()> {
        let family = process::stop_family(&self.child)?;
        sleep_ms(ms).await;
        process::continue_family(&self.child, &family)
    }

    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        process::end(&mut self.child, Signal::INT, STOP_MAX).await?;
        Ok(())
    }
}

/// How far the database clock is ahead of the campaign's: the narrowest bounds of 50 readings.
pub(crate) async fn offset(connection: &mut PgConnection) -> anyhow::Result<Offset> {
    let mut bounds = Offset { low: i64::MIN, high: i64::MAX };
    for _ in 0..50 {
        let sent = now_ms();
        let read: i64 = sqlx::query_scalar("select floor(extract(epoch from clock_timestamp()) * 1000)::bigint")
            .fetch_one(&mut *connection)
            .await?;
        let got = now_ms();
        // Both clocks are read in whole milliseconds, rounded down.
        bounds = Offset { low: bounds.low.max(read - got - 1), high: bounds.high.min(read - sent + 1) };
    }
    anyhow::ensure!(bounds.low <= bounds.high, "a clock was moved during the campaign: {bounds:?}");
    Ok(bounds)
}

async fn spawn(net: Net, folder: &Path, programs: &Path, port: u16) -> anyhow::Result<Child> {
    let log = File::options().create(true).append(true).open(folder.join("postgres.log"))?;
    as_postgres(&mut net.command(Host::Database, "setpriv"))
        .arg(programs.join("postgres"))
        .arg("-D")
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder)
        .args(["-p", &port.to_string()])
        .args(["-c", &format!("listen_addresses={}", net.database_address())])
        .args(["-c", "max_connections=200", "-c", "shared_buffers=128MB", "-c", "log_line_prefix=%m [%p] "])
        .env("LC_ALL", "C")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("could not start PostgreSQL")
}

/// PostgreSQL refuses to run as root.
fn as_postgres(command: &mut Command) -> &mut Command {
    command.args(["--reuid=postgres", "--clear-groups"])
}

/// The programs of the newest version; Debian has a folder per version.
fn programs() -> anyhow::Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .context("no PostgreSQL is installed (Debian: postgresql)")?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path.join("bin")))
        })
        .filter(|(_, path)| path.join("postgres").exists())
        .collect();
    found.sort();
    Ok(found.pop().context("no PostgreSQL is installed (Debian: postgresql)")?.1)
}
