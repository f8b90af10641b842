//! The TLS handshake of a new connection. It is a part of the time limit for the first head. A client that sends plain
//! HTTP gets the answer 400.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{ClientCertificate, Tls};
use crate::server::{ServerLimits, timed::Timed};

/// The answer to a request without TLS.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 68\r\n\
      connection: close\r\n\r\nThis port expects TLS. Write https:// instead of http:// in the URL\n";
/// Maximum number of bytes that are read from a refused client.
const UNREAD_BYTES_MAX: u64 = 64 * 1024;

/// A connection after the handshake.
pub(in crate::server) struct Secured {
    pub(in crate::server) stream: Box<TlsStream<Timed<TcpStream>>>,
    pub(in crate::server) certificate: Option<ClientCertificate>,
}

/// `Ok(None)` when the client does not use TLS; the answer 400 was sent.
pub(in crate::server) async fn secure(
    stream: TcpStream,
    tls: &Tls,
    limits: &ServerLimits,
) -> io::Result<Option<Secured>> {
    let mut first = [0];
    // A TLS record of a handshake begins with 22. A request begins with a letter.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
        return refuse_plain(stream).await.map(|()| None);
    }
    let acceptor = TlsAcceptor::from(tls.current().config);
    let stream = match acceptor.accept(Timed::new(stream, limits.write_timeout)).into_fallible().await {
        Ok(stream) => Box::new(stream),
        Err((error, stream)) => {
            close(stream).await?;
            return Err(error);
        }
    };
    let chain = stream.get_ref().1.peer_certificates();
    let certificate = chain.and_then(|chain| chain.first()).map(|der| ClientCertificate::read(der));
    Ok(Some(Secured { stream, certificate }))
}

async fn refuse_plain(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN).await?;
    close(stream).await
}

/// Closes a connection after the last bytes were sent. Reads what the client still sends: with unread bytes, the kernel
/// would reset the connection, and the client would lose the last bytes.
async fn close(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(UNREAD_BYTES_MAX), &mut tokio::io::sink()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_plain_request_has_the_length_of_its_body() {
        let text = std::str::from_utf8(PLAIN).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
