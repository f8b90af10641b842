//! Which listeners are allowed. Other hosts can reach a TCP listener that is not on a loopback address. Such a listener needs
//! credentials, an encrypted connection, and a public URL.

use super::Listen;

/// What protects the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Protection {
    /// Every request needs a credential.
    pub(crate) credentials: bool,
    pub(crate) tls: bool,
    /// The operator accepts that requests are not encrypted.
    pub(crate) insecure_http: bool,
    pub(crate) public_url: bool,
}

/// What a listener lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    Credentials,
    Encryption,
    PublicUrl,
}

/// What a listener that other hosts can reach lacks first; `None` if it is allowed.
pub(crate) fn lack(listen: &Listen, protection: Protection) -> Option<Lack> {
    let is_local = match listen {
        Listen::Tcp(address) => address.ip().to_canonical().is_loopback(),
        Listen::Unix(_) => true,
    };
    if is_local {
        return None;
    }
    match protection {
        Protection { credentials: false, .. } => Some(Lack::Credentials),
        Protection { tls: false, insecure_http: false, .. } => Some(Lack::Encryption),
        Protection { public_url: false, .. } => Some(Lack::PublicUrl),
        Protection { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Protection = Protection { credentials: false, tls: false, insecure_http: false, public_url: false };
    const ALL: Protection = Protection { credentials: true, tls: true, insecure_http: false, public_url: true };

    #[test]
    fn a_local_listener_needs_nothing() {
        for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1", "unix:/run/a"] {
            assert_eq!(lack(&listen.parse().unwrap(), NONE), None, "{listen}");
        }
    }

    #[test]
    fn another_listener_needs_credentials_encryption_and_a_public_url() {
        let insecure = Protection { tls: false, insecure_http: true, ..ALL };
        for listen in ["0.0.0.0:1", "[::]:1", "10.0.0.5:1", "[fd00::5]:1", "[::ffff:10.0.0.5]:1"] {
            let listen = listen.parse().unwrap();
            for (protection, expected) in [
                (NONE, Some(Lack::Credentials)),
                (Protection { credentials: false, ..ALL }, Some(Lack::Credentials)),
                (Protection { tls: false, ..ALL }, Some(Lack::Encryption)),
                (Protection { public_url: false, ..ALL }, Some(Lack::PublicUrl)),
                (Protection { public_url: false, ..insecure }, Some(Lack::PublicUrl)),
                (insecure, None),
                (ALL, None),
            ] {
                assert_eq!(lack(&listen, protection), expected, "{listen} {protection:?}");
            }
        }
    }
}
