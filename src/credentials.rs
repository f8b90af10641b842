//! The credentials of this user: one token for each server, in a file that only this user can read. A token is sent only to its
//! server. Over plain http it is sent only to this machine, and over a Unix socket only to a process of this user or of root.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use everytick_domain::{access::Token, wrong_input::os_error};
use everytick_worker::Server;
use reqwest::Url;
use serde::Deserialize;

use crate::{failure::Failure, output::note_line};

const TOKEN_VARIABLE: &str = "EVERYTICK_TOKEN";
/// The permissions of the group and of others.
const MODE_OTHERS: u32 = 0o077;
const ROOT: u32 = 0;

/// The variable must not reach the commands that a worker starts.
pub(crate) const SECRET_VARIABLES: [&str; 1] = [TOKEN_VARIABLE];

/// What a command sends to its server.
#[derive(Clone, Default)]
pub(crate) struct Credential {
    token: Option<String>,
    worker_token: Option<String>,
}

/// Shows no tokens.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

impl Credential {
    /// A token that was typed or read from a variable.
    pub(crate) fn typed(text: &str) -> Result<Self, Failure> {
        let token = Token::parse(text.trim()).map_err(|wrong| Failure::usage(wrong.to_string()))?;
        Ok(Self { token: Some(token.expose().to_owned()), worker_token: None })
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
    /// The token for `everytick worker`. A node creates a separate token for workers.
    pub(crate) fn worker_token(&self) -> Option<&str> {
        self.worker_token.as_deref().or(self.token.as_deref())
    }

    /// The credential for a server: the variable if `named`, else the entry of the file. `named` means that a flag or a
    /// variable names the server. Otherwise a settings file could choose the server that receives the token of the variable.
    pub(crate) fn find(server: &Server, named: bool) -> Result<Self, Failure> {
        let found = match std::env::var(TOKEN_VARIABLE) {
            Ok(text) if named => {
                Self::typed(&text).map_err(|wrong| Failure::usage(format!("{TOKEN_VARIABLE}: {wrong}")))?
            }
            variable => {
                if variable.is_ok_and(|text| !text.is_empty()) {
                    note_line(&format!(
                        "warning: {TOKEN_VARIABLE} is ignored, because it is sent only to a server that --server or EVERYTICK_SERVER \
                         names"
                    ));
                }
                Self::stored(server)?
            }
        };
        if found.token.is_some() {
            check_safe(server)?;
        }
        Ok(found)
    }

    /// The entry of the file for this server.
    fn stored(server: &Server) -> Result<Self, Failure> {
        Ok(match path() {
            Some(path) => Stored::load(&path)?.servers.remove(&key(server)).map(Self::from).unwrap_or_default(),
            None => Self::default(),
        })
    }
}

impl From<Entry> for Credential {
    fn from(entry: Entry) -> Self {
        Self { token: Some(entry.token), worker_token: entry.worker_token }
    }
}

/// Whether a token can be sent: encrypted, or without leaving the machine.
pub(crate) fn check_safe(server: &Server) -> Result<(), Failure> {
    if let Some(socket) = server.socket() {
        return check_owner(socket, rustix::process::geteuid().as_raw());
    }
    if is_safe(server.url()) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--server: {} is not on this machine, and over http others could read the token; write https://",
        server.url().host_str().unwrap_or_default()
    )))
}

/// Another user could create a socket at the path, and would receive the token.
fn check_owner(socket: &Path, own: u32) -> Result<(), Failure> {
    // If there is no socket, the connection fails and no token is sent.
    let Ok(found) = fs::metadata(socket) else { return Ok(()) };
    if [own, ROOT].contains(&found.uid()) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--server: the socket {} belongs to the user with the id {}, who would receive the token; run this command as the user \
         of the server",
        socket.display(),
        found.uid()
    )))
}

fn is_safe(server: &Url) -> bool {
    let host = server.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback());
    server.scheme() == "https" || loopback
}

/// The name of a server in the file. `localhost` and `127.0.0.1` are one server. Each Unix socket is a server of its own, under
/// its real path.
pub(crate) fn key(server: &Server) -> String {
    if let Some(socket) = server.socket() {
        let real = fs::canonicalize(socket).or_else(|_| std::path::absolute(socket));
        return format!("unix:{}", real.unwrap_or_else(|_| socket.to_owned()).display());
    }
    server.url().origin().ascii_serialization().replacen("://localhost", "://127.0.0.1", 1)
}

/// The file; `None` if the user has no home directory.
pub(crate) fn path() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")))?;
    Some(config.join("everytick").join("credentials.toml"))
}

#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) token: String,
    pub(crate) worker_token: Option<String>,
}

/// The content of the file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stored {
    #[serde(default)]
    pub(crate) servers: BTreeMap<String, Entry>,
}

impl Stored {
    pub(crate) fn load(path: &Path) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::usage(format!("{}: {what}", path.display()));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(wrong(os_error(&error))),
        };
        let mode = fs::metadata(path).map_or(0, |file| file.mode());
        if mode & MODE_OTHERS != 0 {
            return Err(wrong(format!("other users can read the tokens in it; run `chmod 600 {}`", path.display())));
        }
        // The message of the parser would repeat the line, which contains a token.
        toml::from_str(&text)
            .map_err(|_| wrong("is not a file of credentials; `everytick login` writes one".to_owned()))
    }

    fn text(&self) -> String {
        let mut text = "# Tokens of everytick. Each is a secret: do not copy this file.\n".to_owned();
        for (server, entry) in &self.servers {
            // The escapes of JSON are also those of TOML.
            let server = serde_json::Value::from(server.as_str());
            text += &format!("\n[servers.{server}]\ntoken = \"{}\"\n", entry.token);
            if let Some(token) = &entry.worker_token {
                text += &format!("worker_token = \"{token}\"\n");
            }
        }
        text
    }
}

/// Changes the file. Concurrent changes of other processes are not lost, and a reader sees the old or the new content.
pub(crate) fn change(path: &Path, change: impl FnOnce(&mut Stored)) -> anyhow::Result<()> {
    let wrong = |error: io::Error| Failure::usage(format!("{}: {}", path.display(), os_error(&error)));
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(wrong)?;
    let private = |path: &Path| OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let lock = private(&path.with_extension("lock")).map_err(wrong)?;
    lock.lock().map_err(wrong)?;
    let mut stored = Stored::load(path)?;
    change(&mut stored);
    let new = path.with_extension("new");
    let write = |mut file: File| -> io::Result<()> {
        file.set_len(0)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(stored.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    private(&new).and_then(write).map_err(wrong)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use everytick_worker::Certificates;

    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    fn server(text: &str) -> Server {
        Server::new(text, Certificates::default()).unwrap()
    }

    fn entry(n: u8) -> Entry {
        Entry { token: Token::from_random(&[n; 64]).unwrap().expose().to_owned(), worker_token: None }
    }

    #[test]
    fn a_token_is_sent_over_http_only_to_this_machine() {
        for (server, safe) in [
            ("http://127.0.0.1:8640", true),
            ("http://localhost:1", true),
            ("http://[::1]:1", true),
            ("https://ticks.example.org", true),
            ("http://ticks.example.org", false),
            ("http://10.0.0.1:8640", false),
            ("http://localhost.evil.example", false),
        ] {
            assert_eq!(is_safe(&url(server)), safe, "{server}");
        }
    }

    #[test]
    fn a_server_is_found_by_its_origin() {
        assert_eq!(key(&server("http://localhost:8640/path?x=1")), "http://127.0.0.1:8640");
        assert_ne!(key(&server("http://127.0.0.1:8641")), key(&server("http://127.0.0.1:8640")));
        assert_ne!(key(&server("https://a.example")), key(&server("http://a.example")));
    }

    #[test]
    fn a_unix_socket_is_a_server_under_its_real_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| format!("unix:{}", dir.path().join(name).display());
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("a.sock")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("a.sock"), dir.path().join("link")).unwrap();
        assert_eq!(key(&server(&at("link"))), key(&server(&at("a.sock"))));
        assert!(key(&server(&at("a.sock"))).ends_with("/a.sock"));
        assert_ne!(key(&server(&at("a.sock"))), key(&server(&at("b.sock"))), "a socket that does not exist");
        assert!(key(&server("unix:relative.sock")).starts_with("unix:/"));
    }

    #[test]
    fn a_token_is_sent_to_no_socket_of_another_user() {
        let socket = tempfile::NamedTempFile::new().unwrap();
        let own = fs::metadata(socket.path()).unwrap().uid();
        assert!(check_owner(socket.path(), own).is_ok());
        if own != ROOT {
            return;
        }
        // The tests run as root, whose files all users trust. So change the owner of the file.
        std::os::unix::fs::chown(socket.path(), Some(12_345), None).unwrap();
        for user in [ROOT, 1_000] {
            let refused = check_owner(socket.path(), user).unwrap_err().to_string();
            assert!(refused.contains("12345"), "{refused}");
        }
        assert!(check_owner(socket.path(), 12_345).is_ok());
    }

    #[test]
    fn the_file_is_private_and_reads_back_equal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("everytick/credentials.toml");
        for n in 1..=2 {
            change(&path, |stored| _ = stored.servers.insert(format!("http://127.0.0.1:{n}"), entry(n))).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let odd = "unix:/run/\"a\"\\.sock";
        change(&path, |stored| _ = stored.servers.insert(odd.to_owned(), entry(3))).unwrap();
        let stored = Stored::load(&path).unwrap();
        assert!(stored.servers.len() == 3 && stored.servers[odd] == entry(3));
        assert!(stored.servers["http://127.0.0.1:1"] == entry(1));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let refused = Stored::load(&path).err().unwrap().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn an_error_does_not_repeat_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials.toml");
        fs::write(&path, "token = etk_secret").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let refused = Stored::load(&path).err().unwrap().to_string();
        assert!(!refused.contains("secret"), "{refused}");
        assert!(!Credential::typed("etk_secret").err().unwrap().to_string().contains("secret"));
    }
}
