//! Where the audit trail is sent.

use std::{fmt, path::PathBuf, str::FromStr};

use reqwest::Url;

const EXAMPLES: &str = "write \"file:/var/log/everytick/audit.ndjson\", \"stderr\" or an https URL";

/// The receiver of the audit trail.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum AuditStream {
    File(PathBuf),
    Stderr,
    Https(Url),
}

/// Shows only the host of a URL, whose rest may contain a credential.
impl fmt::Debug for AuditStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Stderr => f.write_str("stderr"),
            Self::Https(url) => write!(f, "https://{}", url.authority()),
        }
    }
}

impl FromStr for AuditStream {
    type Err = String;

    /// The message does not repeat a URL.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "stderr" {
            return Ok(Self::Stderr);
        }
        if let Some(path) = text.strip_prefix("file:") {
            let path = PathBuf::from(path);
            let names_file = path.file_name().is_some();
            return if names_file { Ok(Self::File(path)) } else { Err(format!("{text:?} names no file; {EXAMPLES}")) };
        }
        let Ok(url) = Url::parse(text) else { return Err(format!("is not a receiver of the audit trail; {EXAMPLES}")) };
        if url.scheme() != "https" {
            let scheme = url.scheme();
            return Err(format!("has the scheme {scheme:?}; {EXAMPLES}"));
        }
        if !url.username().is_empty() || url.password().is_some() || !url.has_host() {
            return Err("has a user name or a password, or no host; put a token into the path or the query".to_owned());
        }
        Ok(Self::Https(url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_a_file_stderr_or_an_https_url() {
        for (text, shown) in [
            ("stderr", "stderr"),
            ("file:audit.ndjson", "file:audit.ndjson"),
            ("file:/var/log/a", "file:/var/log/a"),
            ("https://siem.example.org/in?token=t0ken", "https://siem.example.org"),
            ("https://siem.example.org:8443/", "https://siem.example.org:8443"),
        ] {
            assert_eq!(format!("{:?}", text.parse::<AuditStream>().unwrap()), shown);
        }
        for text in ["", "stdout", "file:", "file:/", "/var/log/a", "http://h/?t0ken", "https://u:t0ken@h/", "https://"]
        {
            let error = text.parse::<AuditStream>().unwrap_err();
            assert!(!error.contains("t0ken"), "{error}");
        }
    }
}
