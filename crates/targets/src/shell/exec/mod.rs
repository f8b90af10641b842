//! The hidden subcommand `exec-command`. Two processes separate a command from its server:
//!
//! ```text
//! server ---> supervisor (same user; adopts and ends every descendant)
//!                 +---> starter: joins the cgroup, changes user and limits, then becomes the command
//! ```
//!
//! The server sends the orders over a socket, the stdin of the supervisor, as frames: `Charge` for the supervisor, then `Order`
//! and the payload, which the supervisor passes on over a socket of the starter. So neither orders nor secrets are in arguments or
//! in the environment of a privileged process, and variables of a job reach only the command itself. The answers (`Report`) are
//! lines of JSON on the same sockets. When the server closes its socket, or ends, the supervisor kills everything that is left.
//! The command has none of these sockets.

mod cgroup;
mod descendants;
mod start;
mod supervise;

use std::{
    ffi::OsString,
    io::{self, Read},
    path::PathBuf,
    process::ExitCode,
};

pub(super) use cgroup::leftovers;
use everytick_domain::wrong_input::os_error;
use rustix::{io::write, stdio::stdin};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::isolation::{Cgroup, Isolation};

/// The hidden subcommand.
pub const EXEC_COMMAND: &str = "exec-command";
pub(super) const SUPERVISE: &str = "supervise";
const START: &str = "start";

/// Above the standard streams.
const CONTROL_FD_MIN: i32 = 3;
/// More than the limits of a definition, in JSON.
const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest line of a report.
pub(super) const REPORT_BYTES_MAX: usize = 8 * 1024;
/// Instead of a length: there is no payload.
const NO_FRAME: u32 = u32::MAX;

/// What the supervisor must know.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Charge {
    /// The control group of this command.
    pub(super) cgroup: Option<Cgroup>,
    /// A name for the group that no other command has.
    pub(super) name: String,
}

/// What the starter must know.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) program: PathBuf,
    /// How the command sees its own name.
    pub(super) arg0: String,
    pub(super) args: Vec<String>,
    /// Values may contain bytes that are no text.
    pub(super) env: Vec<(String, Vec<u8>)>,
    pub(super) workdir: Option<PathBuf>,
    pub(super) isolation: Isolation,
    /// Only report whether a command could start.
    pub(super) probe: bool,
}

/// What the server learns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The command could not start.
    Refused { step: Step, errno: i32, what: String },
    /// The command has ended; other processes of it may live.
    Ended { code: Option<i32>, signal: Option<i32> },
    /// The answer to a probe.
    Ready,
}

/// Where a start failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Isolation,
    Workdir,
    Program,
}

/// Runs the subcommand if `args` (with the name of the program) name it.
pub fn exec_command(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    args.next();
    if args.next()?.to_str() != Some(EXEC_COMMAND) {
        return None;
    }
    match args.next().as_ref().and_then(|mode| mode.to_str()) {
        Some(SUPERVISE) => Some(supervise::run()),
        Some(START) => Some(start::run()),
        _ => Some(ExitCode::from(2)),
    }
}

fn why_not(what: &str, error: &io::Error) -> String {
    format!("could not {what}: {}", os_error(error))
}

/// Writes a line to the server. It may be gone.
fn report(report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let _ = write(stdin(), &line);
    }
}

/// A value as a frame.
pub(super) fn frame<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    Ok(payload_frame(Some(serde_json::to_vec(value)?)))
}

pub(super) fn payload_frame<B: AsRef<[u8]>>(bytes: Option<B>) -> Vec<u8> {
    let Some(bytes) = bytes else { return NO_FRAME.to_be_bytes().to_vec() };
    let bytes = bytes.as_ref();
    let length = u32::try_from(bytes.len()).unwrap_or(NO_FRAME - 1);
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Reads exactly one frame: the next one is for another process.
fn read_bytes(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length == NO_FRAME {
        return Ok(None);
    }
    let length = usize::try_from(length).ok().filter(|length| *length <= FRAME_BYTES_MAX);
    let mut bytes = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let bytes = read_bytes(from)?.ok_or(io::ErrorKind::InvalidData)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_one_by_one() {
        let bytes = [payload_frame(Some(b"one")), payload_frame(None::<&[u8]>), payload_frame(Some(b""))].concat();
        let mut from = bytes.as_slice();
        assert_eq!(read_bytes(&mut from).unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(read_bytes(&mut from).unwrap(), None);
        assert_eq!(read_bytes(&mut from).unwrap().as_deref(), Some(&b""[..]));
        assert!(read_bytes(&mut from).is_err(), "the end");
        assert!(read_bytes(&mut &(NO_FRAME - 1).to_be_bytes()[..]).is_err(), "too long");
    }

    #[test]
    fn other_arguments_are_not_the_subcommand() {
        for args in [&["everytick"][..], &["everytick", "serve"], &["everytick", "job", EXEC_COMMAND]] {
            assert!(exec_command(args.iter().map(OsString::from)).is_none());
        }
    }
}
