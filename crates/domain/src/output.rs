//! The stored output of a run: its end, up to [`OUTPUT_TAIL_BYTES_MAX`]. The end is kept because the cause of a failure
//! is usually printed last. If earlier bytes are missing, the first line of the stored text states how many. The number
//! has no column of its own, so it cannot contradict the text. It stays correct when parts are appended to a log.

pub const OUTPUT_TAIL_BYTES_MAX: usize = 64 * 1024;

const MARK_BEGIN: &str = "[everytick: the first ";
const MARK_END: &str = " bytes of this output are not stored]\n";
/// Limit of the first line: 20 digits fit.
const MARK_BYTES_MAX: usize = MARK_BEGIN.len() + 20 + MARK_END.len();

/// A part of a worker's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPart<'a> {
    /// Bytes before `text` that the worker did not send, because it printed faster than it could send.
    pub missing: u64,
    pub text: &'a str,
}

impl<'a> From<&'a str> for LogPart<'a> {
    fn from(text: &'a str) -> Self {
        Self { missing: 0, text }
    }
}

/// Splits a stored output into the number of missing bytes and the text after the line that states this number.
#[must_use]
pub fn split(stored: &str) -> (u64, &str) {
    let marked = || {
        let (count, body) = stored.strip_prefix(MARK_BEGIN)?.split_once(MARK_END)?;
        let is_count = count.bytes().all(|byte| byte.is_ascii_digit());
        Some((count.parse().ok().filter(|_| is_count)?, body))
    };
    marked().unwrap_or((0, stored))
}

/// The stored form of a text. `missing` bytes before the text are already lost.
#[must_use]
pub fn keep(text: &str, missing: u64) -> String {
    if missing == 0 && text.len() <= OUTPUT_TAIL_BYTES_MAX {
        return text.to_owned();
    }
    let from = text.ceil_char_boundary(text.len().saturating_sub(OUTPUT_TAIL_BYTES_MAX - MARK_BYTES_MAX));
    format!("{}{}", mark(missing.saturating_add(from as u64)), &text[from..])
}

/// The first line of an output whose first `missing` bytes are not stored; empty for 0.
#[must_use]
pub fn mark(missing: u64) -> String {
    if missing == 0 { String::new() } else { format!("{MARK_BEGIN}{missing}{MARK_END}") }
}

/// The stored form of an output that may be in that form already.
#[must_use]
pub fn keep_stored(text: String) -> String {
    if text.len() <= OUTPUT_TAIL_BYTES_MAX {
        return text;
    }
    let (missing, body) = split(&text);
    keep(body, missing)
}

/// Appends to a stored log. After a gap, the earlier text is left out, so that the missing bytes are always the first ones.
#[must_use]
pub fn append(log: Option<&str>, part: LogPart<'_>) -> String {
    let (missing, body) = split(log.unwrap_or_default());
    match part.missing {
        0 => keep(&format!("{body}{}", part.text), missing),
        gap => keep(part.text, missing.saturating_add(body.len() as u64).saturating_add(gap)),
    }
}

/// The output of a run whose worker logged and settled with an output: the log, then the output. An output that repeats the end of
/// the log is stored once.
#[must_use]
pub fn join(log: Option<String>, output: Option<String>) -> Option<String> {
    let (log, output) = match (log, output) {
        (Some(log), Some(output)) => (log, output),
        (log, output) => return output.or(log).map(keep_stored),
    };
    if repeats(&log, &output) {
        return Some(keep_stored(log));
    }
    let (missing, body) = split(&log);
    let line_end = if body.is_empty() || body.ends_with('\n') { "" } else { "\n" };
    Some(keep(&format!("{body}{line_end}{output}"), missing))
}

/// Whether a reported output is stored already. Then the stored text ends with the output, or is the end of an output
/// that was cut to the limit.
#[must_use]
pub fn repeats(stored: &str, output: &str) -> bool {
    let (missing, body) = split(stored);
    stored == output || body.ends_with(output) || (missing > 0 && output.ends_with(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = OUTPUT_TAIL_BYTES_MAX;

    #[test]
    fn a_short_output_is_stored_as_it_is() {
        for text in ["", "a\n", &"x".repeat(MAX)] {
            assert_eq!((keep(text, 0).as_str(), split(text)), (text, (0, text)));
        }
    }

    #[test]
    fn the_first_line_of_a_long_output_states_how_many_bytes_are_missing() {
        for text in ["x".repeat(MAX + 1), "é".repeat(MAX), "a\n".repeat(MAX)] {
            let stored = keep(&text, 0);
            let (missing, body) = split(&stored);
            assert!(stored.len() <= MAX && text.ends_with(body) && !body.is_empty());
            assert_eq!(missing as usize + body.len(), text.len());
            assert_eq!(stored.lines().next().unwrap(), mark(missing).trim_end());
            assert_eq!(keep_stored(stored.clone()), stored, "it is not cut twice");
        }
    }

    #[test]
    fn a_log_in_parts_counts_all_missing_bytes() {
        let (mut log, mut whole) = (None, 0);
        for part in ["one\n".to_owned(), "é".repeat(30_000), "x".repeat(MAX), "end\n".to_owned()] {
            log = Some(append(log.as_deref(), part.as_str().into()));
            whole += part.len();
            let (missing, body) = split(log.as_deref().unwrap());
            assert_eq!(missing as usize + body.len(), whole);
        }
        let gap = append(log.as_deref(), LogPart { missing: 1_000, text: "after" });
        assert_eq!(split(&gap), (whole as u64 + 1_000, "after"));
    }

    #[test]
    fn a_log_and_an_output_are_both_kept() {
        let join = |log: &str, output: &str| join(Some(log.to_owned()), Some(output.to_owned())).unwrap();
        assert_eq!(join("one\n", "done"), "one\ndone");
        assert_eq!(join("one", "done"), "one\ndone");
        assert_eq!(join("", "done"), "done");
        assert_eq!(join("one\ndone\n", "done\n"), "one\ndone\n", "the output repeats the end of the log");
        let long = "x".repeat(MAX);
        let stored = join("one\n", &long);
        assert_eq!(split(&stored).0 as usize + split(&stored).1.len(), MAX + 4);
        let logged = append(None, LogPart { missing: 7, text: &long });
        assert_eq!(join(&logged, &long), logged, "the output of a worker that logs what it prints");
        assert_eq!(super::join(None, None), None);
        assert_eq!(super::join(Some("log".into()), None).as_deref(), Some("log"));
    }

    #[test]
    fn a_repeated_report_is_recognized_by_the_stored_text() {
        let long = "0123456789".repeat(MAX / 5);
        for (log, output) in [(None, "done"), (Some("one\n"), "done"), (None, &long), (Some("one\n"), &long)] {
            let stored = join(log.map(str::to_owned), Some(output.to_owned())).unwrap();
            assert!(repeats(&stored, output));
            assert!(!repeats(&stored, "other"));
        }
    }

    #[test]
    fn a_line_that_only_resembles_the_first_line_is_text() {
        for text in ["[everytick: the first +5 bytes of this output are not stored]\n", "[everytick: the first "] {
            assert_eq!(split(text), (0, text));
        }
    }
}
