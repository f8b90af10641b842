//! Prints the output of commands: tables on a terminal, plain aligned text in a pipe, or the JSON of the API.
//! Nothing here panics on a closed pipe: every write returns its error.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::{Deserialize, Serialize};

use crate::times::Times;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
}

/// In a narrower terminal, columns would be a few letters wide. Lines that the terminal wraps are easier to read.
const WRAP_WIDTH_MIN: u16 = 60;
const LAST_WIDTH_MIN: u16 = 24;
/// The width of a terminal that does not report one.
const WIDTH_ASSUMED: u16 = 80;

/// The format of the output, and whether stdout is a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
    times: Times,
    terminal: bool,
    colour: bool,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        let terminal = io::stdout().is_terminal();
        Self { format, times: Times::default(), terminal, colour: terminal && colour_wanted() }
    }

    pub(crate) fn with_times(self, times: Times) -> Self {
        Self { times, ..self }
    }

    /// Shows times in the zone of a job, else in the local zone.
    pub(crate) fn in_zone(self, job: Option<&str>) -> Self {
        self.with_times(self.times.in_zone(job))
    }

    /// An instant as tables show it: RFC 3339 in the zone of the output. JSON output stays in UTC.
    pub(crate) fn time(&self, at: impl ToString) -> String {
        self.times.show(&at.to_string())
    }

    /// The same; an absent instant is an empty text.
    pub(crate) fn time_of(&self, at: Option<&String>) -> Text {
        Text::plain(at.map(|at| self.time(at)).unwrap_or_default())
    }

    /// How the command reads and shows times.
    pub(crate) fn times(&self) -> Times {
        self.times
    }

    /// The columns of the terminal; 0 if stdout is not a terminal.
    pub(crate) fn columns(&self) -> usize {
        if self.terminal { Table::new().width().map_or(0, usize::from) } else { 0 }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    pub(crate) fn json(&self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value)?;
        self.line(&if self.terminal { printable(&indented(&text)) } else { text })
    }

    /// Prints one object per line, for streams.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> io::Result<()> {
        self.line(&serde_json::to_string(value)?)
    }

    pub(crate) fn line(&self, text: &str) -> io::Result<()> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Writes unchanged and flushes, because the output may be followed live.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// Writes a part of the output of a run. In a pipe, the bytes are unchanged. On a terminal, control characters are replaced, and
    /// `begun` keeps an incomplete character until the next part.
    pub(crate) fn part(&self, bytes: &[u8], begun: &mut Vec<u8>) -> io::Result<()> {
        if !self.terminal {
            return self.bytes(bytes);
        }
        begun.extend_from_slice(bytes);
        self.bytes(visible(&take_text(begun)).as_bytes())
    }

    /// Prints rows under a header. On a terminal only the last column wraps; the others contain ids and names to copy.
    pub(crate) fn table(&self, header: &[&str], rows: Vec<Vec<Text>>) -> io::Result<()> {
        let mut table = self.plain_table(WRAP_WIDTH_MIN);
        table.set_header(header.iter().map(|name| self.cell(Text::strong(*name))));
        for row in rows {
            table.add_row(row.into_iter().map(|text| self.cell(text)));
        }
        self.print(&mut table)
    }

    /// Prints one object as name and value lines. Omits empty values.
    pub(crate) fn facts(&self, facts: Vec<(&str, Text)>) -> io::Result<()> {
        // Two columns also fit into a narrow terminal. Without a limit, a long value would pad every line to its width.
        let mut table = self.plain_table(0);
        for (name, value) in facts {
            if !value.text.is_empty() {
                table.add_row([self.cell(Text::strong(name)), self.cell(value)]);
            }
        }
        self.print(&mut table)
    }

    /// A table that wraps to the width of the terminal, unless that is less than `width_min`.
    fn plain_table(&self, width_min: u16) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if !self.terminal {
            table.force_no_tty();
        }
        if self.terminal && table.width().is_none() {
            table.set_width(WIDTH_ASSUMED);
        }
        let wraps = self.terminal && table.width().is_some_and(|width| width >= width_min);
        table.set_content_arrangement(if wraps { ContentArrangement::Dynamic } else { ContentArrangement::Disabled });
        if self.colour {
            table.enforce_styling();
        }
        table
    }

    fn print(&self, table: &mut Table) -> io::Result<()> {
        let last = table.column_count().saturating_sub(1);
        // A wider limit than the content would pad every line.
        let content = table.column_max_content_widths().last().copied().unwrap_or(0);
        let last_min = LAST_WIDTH_MIN.min(content.max(1));
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if index < last { 2 } else { 0 }));
            column.set_constraint(if index < last {
                ColumnConstraint::ContentWidth
            } else {
                ColumnConstraint::LowerBoundary(Width::Fixed(last_min))
            });
        }
        let lines: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        self.bytes(lines.as_bytes())
    }

    fn cell(&self, text: Text) -> Cell {
        let raw = text.is_raw && !self.terminal;
        let cell = Cell::new(if raw { text.text.clone() } else { printable(&text.text) });
        let cell = if text.right { cell.set_alignment(CellAlignment::Right) } else { cell };
        match text.tone {
            _ if !self.colour || text.text.is_empty() => cell,
            Tone::Plain => cell,
            Tone::Strong => cell.add_attribute(Attribute::Bold),
            Tone::Good => cell.fg(Color::Green),
            Tone::Bad => cell.fg(Color::Red),
            Tone::Busy => cell.fg(Color::Cyan),
            Tone::Quiet => cell.fg(Color::DarkGrey),
            Tone::Warn => cell.fg(Color::Yellow),
        }
    }
}

/// Text with a tone, which becomes a colour on a terminal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    text: String,
    tone: Tone,
    right: bool,
    /// Not changed in a pipe.
    is_raw: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Good,
    Bad,
    Busy,
    Quiet,
    Warn,
}

impl Text {
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone, right: false, is_raw: false }
    }
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Plain)
    }
    /// Cuts the text to its first line and to this width.
    pub(crate) fn cut(&mut self, width: usize) {
        self.text = first_line(&self.text, width);
    }
    /// How many columns it takes, if its characters are narrow.
    pub(crate) fn width(&self) -> usize {
        self.text.chars().count()
    }
    pub(crate) fn strong(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Strong)
    }
    /// In a pipe, control characters of the text are not changed.
    pub(crate) fn raw(self) -> Self {
        Self { is_raw: true, ..self }
    }
    /// Appends text in the same tone.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.text += more;
        self
    }
    pub(crate) fn number(text: impl Into<String>) -> Self {
        Self { right: true, ..Self::plain(text) }
    }
}

/// Whether colours are allowed: not with `NO_COLOR` set or on a dumb terminal.
pub(crate) fn colour_wanted() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Formats `error: ...` for stderr.
pub(crate) fn error_text(message: &str) -> String {
    let colour = colour_wanted() && io::stderr().is_terminal();
    let (on, off) = if colour { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    format!("{on}error:{off} {message}")
}

/// Writes a remark to stderr, so that stdout contains only the answer.
pub(crate) fn note_line(message: &str) {
    let _ = writeln!(io::stderr().lock(), "{message}");
}

/// Takes the text out of `bytes` and leaves an incomplete character at the end, whose rest is still to be read.
pub(crate) fn take_text(bytes: &mut Vec<u8>) -> String {
    let is_begun = |end: &[u8]| std::str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
    let begun = bytes.utf8_chunks().last().map_or(0, |last| last.invalid().len());
    let begun = if is_begun(&bytes[bytes.len() - begun..]) { begun } else { 0 };
    let rest = bytes.split_off(bytes.len() - begun);
    String::from_utf8_lossy(&std::mem::replace(bytes, rest)).into_owned()
}

/// Replaces control characters. Text from jobs may contain escape sequences, which a terminal would execute.
pub(crate) fn printable(text: &str) -> String {
    visible(text).chars().map(|c| if c == '\t' { ' ' } else { c }).collect()
}

/// Removes colours and other control sequences, and replaces all other control characters but line ends and tabs. A carriage
/// return, which progress bars print, is a line end.
fn visible(text: &str) -> String {
    let (mut shown, mut chars) = (String::with_capacity(text.len()), text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                // A sequence ends with its first character from `@` to `~`. Any other character but its parameters is text.
                while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
                chars.next_if(|c| matches!(c, '@'..='~'));
            }
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    shown.push('\n');
                }
            }
            '\n' | '\t' => shown.push(c),
            // The last two ranges reverse the order of the text that follows them.
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                shown.push('\u{fffd}')
            }
            c => shown.push(c),
        }
    }
    shown
}

/// Formats JSON with one member per line. Works on the text, so that order and numbers stay as the server wrote them.
fn indented(json: &str) -> String {
    let (mut text, mut depth, mut quoted, mut escaped) = (String::new(), 0_usize, false, false);
    let mut chars = json.chars().filter(|c| *c != '\n').peekable();
    while let Some(c) = chars.next() {
        if quoted {
            text.push(c);
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            ' ' | '\t' | '\r' => {}
            '{' | '[' => {
                text.push(c);
                while chars.next_if(|next| next.is_whitespace()).is_some() {}
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => text.push(end),
                    None => {
                        depth += 1;
                        new_line(&mut text, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut text, depth);
                text.push(c);
            }
            ',' => {
                text.push(c);
                new_line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            c => {
                quoted = c == '"';
                text.push(c);
            }
        }
    }
    text
}

fn new_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

/// The first line of a text, cut to `chars_max` characters.
pub(crate) fn first_line(text: &str, chars_max: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= chars_max {
        return line.to_owned();
    }
    line.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_replaced_and_not_sent_to_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\tc\r\nd"), "ab c\nd");
        assert_eq!(visible("\x1b[1;31mred\x1b[0m\t10%\r20%\n"), "red\t10%\n20%\n");
        for hostile in
            ["\x1b]0;title\x07", "\x1b", "\x1b[", "\x1b[31\u{9b}m", "\u{7f}\u{85}", "\u{202e}", "\x1b[é", "\x08\x0c"]
        {
            let shown = visible(hostile);
            assert!(shown.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{hostile:?}: {shown:?}");
        }
    }

    #[test]
    fn a_character_that_two_reads_share_stays_whole() {
        let mut bytes = Vec::new();
        let text: String = [&b"\xff a\xe2\x82"[..], b"\xac", b"\xc3", b"\xa9."]
            .map(|chunk| {
                bytes.extend_from_slice(chunk);
                take_text(&mut bytes)
            })
            .concat();
        assert_eq!((text.as_str(), bytes.len()), ("\u{fffd} a\u{20ac}\u{e9}.", 0));
    }

    #[test]
    fn indenting_json_changes_only_whitespace() {
        let text = r#"{"z": 1.50,"a":[ ],"b":[1e2, {"q":"a\"},[{:,\\"}],"c":{}}"#;
        let expected = [
            "{",
            r#"  "z": 1.50,"#,
            r#"  "a": [],"#,
            r#"  "b": ["#,
            "    1e2,",
            "    {",
            r#"      "q": "a\"},[{:,\\""#,
            "    }",
            "  ],",
            r#"  "c": {}"#,
            "}",
        ];
        assert_eq!(indented(text), expected.join("\n"));
    }

    #[test]
    fn a_long_line_is_cut_and_ends_with_an_ellipsis() {
        assert_eq!(first_line("abcdef\nsecond", 4), "abc…");
        assert_eq!(first_line("abcd", 4), "abcd");
        assert_eq!(first_line("", 4), "");
    }
}
