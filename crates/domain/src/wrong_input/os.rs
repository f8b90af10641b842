//! Errors of the operating system, in words. A number such as `os error 111` helps no user.

use std::io::{Error, ErrorKind};

/// What went wrong, for a message that already names the file or the host.
#[must_use]
pub fn os_error(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "the permission is missing".to_owned(),
        ErrorKind::IsADirectory => "it is a directory; name a file".to_owned(),
        ErrorKind::NotADirectory => "a part of the path is not a directory".to_owned(),
        ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        ErrorKind::ConnectionRefused => "no server listens at this address".to_owned(),
        ErrorKind::TimedOut => "it did not answer in time".to_owned(),
        ErrorKind::StorageFull => "the disk is full".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => without_number(&error.to_string()),
    }
}

/// Removes `(os error 2)` from a message.
#[must_use]
pub fn without_number(message: &str) -> String {
    let mut text = message.to_owned();
    while let Some(begin) = text.find(" (os error ") {
        let Some(end) = text[begin..].find(')') else { break };
        text.replace_range(begin..=begin + end, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_has_the_number_of_an_error() {
        for code in 1..140 {
            let words = os_error(&Error::from_raw_os_error(code));
            assert!(!words.is_empty() && !words.contains("os error"), "{code}: {words}");
        }
        assert_eq!(without_number("a (os error 2): b (os error 13)"), "a: b");
        assert_eq!(without_number("a (os error"), "a (os error");
    }
}
