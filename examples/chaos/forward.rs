//! `chaos forward SOCKET ADDRESS`, run inside a node's namespace: a node listens on its loopback alone, and files are shared.

use tokio::net::{TcpStream, UnixListener};

pub(crate) async fn run(socket: &str, address: &str) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket)?;
    loop {
        let (mut near, _) = listener.accept().await?;
        let address = address.to_owned();
        tokio::spawn(async move {
            // A node that is down is a connection that ends.
            if let Ok(mut far) = TcpStream::connect(address).await {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            }
        });
    }
}
