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

    /// Prints rows under a header. On a terminal only the last column wraps; the others contain ids and names to copy.
    pub(crate) fn table(&self, header: &[&str], rows: Vec<Vec<Text>>) -> io::Result<()> {
        let mut table = self.plain_table();
        table.set_header(header.iter().map(|name| self.cell(Text::strong(*name))));
        for row in rows {
            table.add_row(row.into_iter().map(|text| self.cell(text)));
        }
        self.print(&mut table)
    }

    /// Prints one object as name and value lines. Omits empty values.
    pub(crate) fn facts(&self, facts: Vec<(&str, Text)>) -> io::Result<()> {
        let mut table = self.plain_table();
        for (name, value) in facts {
            if !value.text.is_empty() {
                table.add_row([self.cell(Text::strong(name)), self.cell(value)]);
            }
        }
        self.print(&mut table)
    }

    fn plain_table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if !self.terminal {
            table.force_no_tty();
        }
        let wraps = self.terminal && table.width().is_some_and(|width| width >= WRAP_WIDTH_MIN);
        table.set_content_arrangement(if wraps { ContentArrangement::Dynamic } else { ContentArrangement::Disabled });
        if self.colour {
            table.enforce_styling();
        }
        table
    }

    fn print(&self, table: &mut Table) -> io::Result<()> {
        let last = table.column_count().saturating_sub(1);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            column.set_constraint(if index < last {
                ColumnConstraint::ContentWidth
            } else {
                ColumnConstraint::LowerBoundary(Width::Fixed(LAST_WIDTH_MIN))
            });
        }
        let lines: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        self.bytes(lines.as_bytes())
    }

    fn cell(&self, text: Text) -> Cell {
        let cell = Cell::new(printable(&text.text));
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
        Self { text: text.into(), tone, right: false }
    }
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Plain)
    }
    pub(crate) fn strong(text: impl Into<String>) -> Self {
        Self::new(text, Tone::Strong)
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

/// Replaces control characters. Text from jobs may contain escape sequences, which a terminal would execute.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => c,
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
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
        assert_eq!(printable("a\x1b[2Jb\tc\r\nd"), "a\u{fffd}[2Jb c\u{fffd}\nd");
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
