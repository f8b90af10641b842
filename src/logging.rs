//! The log of a node or worker, on stderr: text lines, JSON, or the plain lines of a worker. A log that cannot be written never
//! blocks or fails the code that logs (see `writer`). Panics go to the same log (see `panics`).

mod panics;
mod writer;

use std::{
    fmt,
    io::{self, IsTerminal},
    str::FromStr,
};

use anyhow::Context;
use serde::Deserialize;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use crate::output;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The log filter: a level, or directives such as `info,everytick_engine=debug`. Validated when it is parsed.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct LogLevel(String);

impl Default for LogLevel {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A one-word directive must be a level. `EnvFilter` takes any other word as a module name and logs only that module.
        let known = |directive: &str| directive.contains(['=', '[', ':']) || LevelFilter::from_str(directive).is_ok();
        let known = text.split(',').map(str::trim).all(|directive| !directive.is_empty() && known(directive));
        match EnvFilter::try_new(text) {
            Ok(_) if known => Ok(Self(text.to_owned())),
            _ => Err(format!(
                "{text:?} is not a log level; write error, warn, info, debug or trace, or \"info,everytick_engine=debug\""
            )),
        }
    }
}

impl TryFrom<String> for LogLevel {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Starts a log of plain lines ([`line`]), for commands that run long.
pub(crate) fn start_lines() -> anyhow::Result<()> {
    writer::start().context("could not start the thread that writes the log")
}

/// Writes one line of a log of plain lines. Never blocks.
pub(crate) fn line(text: &str) {
    writer::push(format!("{text}\n").into_bytes());
}

/// Starts the log of this process and sends panics to it. A second call changes nothing.
pub(crate) fn start(format: LogFormat, level: &LogLevel) -> anyhow::Result<()> {
    writer::start().context("could not start the thread that writes the log")?;
    panics::install(format);
    let colour = output::colour_wanted() && io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(&level.0)?)
        .with_writer(|| writer::LogWriter)
        .with_ansi(colour && format == LogFormat::Text);
    // An error means that an earlier call started the log, which stays in use.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).try_init(),
    };
    Ok(())
}

/// Writes the last line of the process through the log queue, and waits for it for a bounded time. Returns `false` if the
/// log has not started; the caller may then write to stderr directly.
pub(crate) fn last_line(line: &str) -> bool {
    writer::last_line(format!("{line}\n").into_bytes())
}

/// Waits until the lines logged so far are written, for a bounded time. Call it before the process ends.
pub(crate) fn flush() {
    writer::flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_not_a_level_is_refused() {
        for level in ["info", "WARN", "off", "info,everytick_engine=debug", "everytick_engine=trace", "warn,sqlx=off"] {
            assert_eq!(level.parse::<LogLevel>().map(|level| level.to_string()), Ok(level.to_owned()));
        }
        for wrong in ["", "loud", "infoo", "info,verbose", "info,", "everytick_engine=loud"] {
            let refused = wrong.parse::<LogLevel>().unwrap_err();
            assert!(refused.contains("write error, warn, info, debug or trace"), "{wrong}: {refused}");
        }
    }
}
