//! `chaos forward SOCKET ADDRESS` runs inside the network namespace of a node and forwards a Unix socket to the node. The node
//! listens only on loopback of its namespace. The campaign runs outside, but can open the socket, because all namespaces share
//! the files.

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
