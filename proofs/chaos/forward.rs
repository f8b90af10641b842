//! `chaos forward SOCKET ADDRESS` runs inside a node's network namespace. A node listens only on loopback there, but files are
//! shared, so this forwards a Unix socket to it.

use tokio::net::{TcpStream, UnixListener};

pub(crate) async fn run(socket: &str, address: &str) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket)?;
    loop {
        let (mut near, _) = listener.accept().await?;
        let address = address.to_owned();
        tokio::spawn(async move {
            // If the node is down, the connection just ends.
            if let Ok(mut far) = TcpStream::connect(address).await {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            }
        });
    }
}
