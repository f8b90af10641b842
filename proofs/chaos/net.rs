//! The network: the database and each node in its own network namespace, on one bridge, or all of them on loopback. The namespaces
//! are created inside one that the script created, so they disappear with this process.

use anyhow::Context;
use tokio::process::Command;

/// Number of nodes.
pub(crate) const NODES: usize = 3;

const CAMPAIGN: &str = "10.99.0.1";
const DATABASE: &str = "10.99.0.2";
pub(crate) const WEBHOOKS: &str = "10.99.0.1/32";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Net {
    Spaces,
    /// Without namespaces no connection can be cut: the node is stopped instead, and the report notes this.
    Plain,
}

/// The owner of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Host {
    Database,
    Node(usize),
}

/// What a node is disconnected from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Database,
    Sink,
}

/// Which packets are dropped, from the node's point of view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Both,
    /// Packets from the node are lost.
    Out,
    /// Packets to the node are lost.
    In,
}

impl Host {
    fn space(self) -> String {
        match self {
            Self::Database => "database".to_owned(),
            Self::Node(n) => format!("node{n}"),
        }
    }

    fn address(self) -> String {
        match self {
            Self::Database => DATABASE.to_owned(),
            Self::Node(n) => format!("10.99.0.{}", 11 + n),
        }
    }
}

impl Net {
    pub(crate) async fn start(self) -> anyhow::Result<()> {
        if self == Self::Plain {
            return Ok(());
        }
        ip("link set lo up").await?;
        ip("link add everytick type bridge").await?;
        ip(&format!("addr add {CAMPAIGN}/24 dev everytick")).await?;
        ip("link set everytick up").await?;
        for host in std::iter::once(Host::Database).chain((0..NODES).map(Host::Node)) {
            let (space, address) = (host.space(), host.address());
            ip(&format!("netns add {space}")).await?;
            ip(&format!("link add to-{space} type veth peer name eth0 netns {space}")).await?;
            ip(&format!("link set to-{space} master everytick up")).await?;
            ip(&format!("-n {space} addr add {address}/24 dev eth0")).await?;
            ip(&format!("-n {space} link set eth0 up")).await?;
            ip(&format!("-n {space} link set lo up")).await?;
        }
        Ok(())
    }

    /// A command that runs in the namespace of `host`. `ip netns exec` replaces itself with the program, so the pid is the
    /// program's.
    pub(crate) fn command(self, host: Host, program: &str) -> Command {
        match self {
            Self::Plain => Command::new(program),
            Self::Spaces => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &host.space(), program]);
                command
            }
        }
    }

    pub(crate) const fn database_address(self) -> &'static str {
        match self {
            Self::Spaces => DATABASE,
            Self::Plain => "127.0.0.1",
        }
    }

    /// The address of the sink, as seen from the nodes.
    pub(crate) const fn sink_address(self) -> &'static str {
        match self {
            Self::Spaces => CAMPAIGN,
            Self::Plain => "127.0.0.1",
        }
    }

    pub(crate) const fn webhook_range(self) -> &'static str {
        match self {
            Self::Spaces => WEBHOOKS,
            Self::Plain => "127.0.0.0/8",
        }
    }

    pub(crate) async fn cut(self, node: usize, from: Peer, way: Way) -> anyhow::Result<()> {
        self.filter("-A", node, from, way).await
    }

    pub(crate) async fn join(self, node: usize, to: Peer, way: Way) -> anyhow::Result<()> {
        self.filter("-D", node, to, way).await
    }

    async fn filter(self, change: &str, node: usize, peer: Peer, way: Way) -> anyhow::Result<()> {
        let address = match peer {
            Peer::Database => DATABASE,
            Peer::Sink => CAMPAIGN,
        };
        let out = ["OUTPUT", "-d"];
        let inward = ["INPUT", "-s"];
        let chains = match way {
            Way::Both => vec![out, inward],
            Way::Out => vec![out],
            Way::In => vec![inward],
        };
        for [chain, side] in chains {
            let mut command = self.command(Host::Node(node), "iptables");
            command.args(["-w", change, chain, side, address, "-j", "DROP"]);
            done(command, "iptables").await?;
        }
        Ok(())
    }
}

async fn ip(words: &str) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    command.args(words.split(' '));
    done(command, words).await
}

async fn done(mut command: Command, what: &str) -> anyhow::Result<()> {
    let output = command.output().await.with_context(|| format!("could not run {what}"))?;
    anyhow::ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
