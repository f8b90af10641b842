//! The three nodes and the database, and the faults applied to them.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Mutex as AsyncMutex;

use crate::{
    common::{now_ms, sleep_ms},
    faults::Fault,
    net::{NODES, Net},
    node::{Api, Node, Setup},
    postgres::Postgres,
};

/// How often nodes are checked for an unexpected exit.
const SUPERVISE_MS: i64 = 500;

#[derive(Clone)]
pub(crate) struct Cluster {
    net: Net,
    nodes: Vec<Arc<AsyncMutex<Node>>>,
    pub(crate) postgres: Arc<AsyncMutex<Postgres>>,
    /// Unexpected behaviour of nodes, such as an exit.
    oddities: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    pub(crate) async fn start(setup: &Setup, postgres: Postgres) -> anyhow::Result<(Self, Vec<Api>)> {
        let (mut nodes, mut apis) = (Vec::new(), Vec::new());
        for n in 0..NODES {
            let node = Node::start(setup.clone(), n).await?;
            apis.push(node.api());
            nodes.push(Arc::new(AsyncMutex::new(node)));
        }
        let cluster =
            Self { net: setup.net, nodes, postgres: Arc::new(AsyncMutex::new(postgres)), oddities: Arc::default() };
        tokio::spawn(cluster.clone().supervise());
        Ok((cluster, apis))
    }

    pub(crate) fn oddities(&self) -> Vec<String> {
        self.oddities.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn odd(&self, what: String) {
        self.oddities.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{}: {what}", now_ms()));
    }

    /// Restarts a node that exits by itself, as a supervisor would.
    async fn supervise(self) {
        loop {
            sleep_ms(SUPERVISE_MS).await;
            for node in &self.nodes {
                let Ok(mut node) = node.try_lock() else { continue };
                match node.revive() {
                    Ok(None) => {}
                    Ok(Some(ended)) => self.odd(ended),
                    Err(error) => self.odd(format!("{error:#}")),
                }
            }
        }
    }

    /// Applies the fault, waits, and heals it. Returns the instant from which catching up is measured.
    pub(crate) async fn strike(&self, fault: Fault) -> anyhow::Result<i64> {
        match fault {
            Fault::Kill { node, down_ms } => {
                let mut node = self.nodes[node].lock().await;
                node.kill().await?;
                let killed_at = now_ms();
                sleep_ms(down_ms).await;
                node.start_again()?;
                return Ok(killed_at);
            }
            Fault::Freeze { node, ms } => {
                let mut node = self.nodes[node].lock().await;
                node.freeze()?;
                sleep_ms(ms).await;
                node.thaw()?;
            }
            Fault::Cut { node, peer, way, ms } => {
                self.net.cut(node, peer, way).await?;
                sleep_ms(ms).await;
                self.net.join(node, peer, way).await?;
            }
            Fault::Clock { seconds, ms, restart } => {
                let mut node = self.nodes[NODES - 1].lock().await;
                node.move_clock(&format!("{seconds:+}"))?;
                if restart {
                    node.kill().await?;
                    node.start_again()?;
                }
                sleep_ms(ms).await;
                node.move_clock("+0")?;
            }
            Fault::Rolling => {
                for node in &self.nodes {
                    if !node.lock().await.restart().await? {
                        self.odd("a node did not stop in time and was killed".to_owned());
                    }
                }
            }
            Fault::DatabaseRestart { down_ms } => self.postgres.lock().await.restart(down_ms).await?,
            Fault::DatabaseCrash { down_ms } => self.postgres.lock().await.crash(down_ms).await?,
            Fault::DatabaseFreeze { ms } => self.postgres.lock().await.pause(ms).await?,
        }
        Ok(now_ms())
    }

    /// Stops all nodes and the database, and notes nodes that did not stop in time.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        for node in &self.nodes {
            if !node.lock().await.stop().await? {
                self.odd("a node did not stop in time at the end".to_owned());
            }
        }
        self.postgres.lock().await.stop().await
    }
}
