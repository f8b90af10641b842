//! `everytick calendar`: sets, shows, lists and deletes calendars on a server. The client reads the calendar file, so that
//! flags can add dates to it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use everytick_domain::{
    calendar::{Days, LeftOut, MonthDay, check_calendar_name, from_ics},
    invalid::Invalid,
    wrong_input::json_syntax,
};
use everytick_store::{SystemClock, WallClock};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    job::{self, PageFlags},
    run,
};
use crate::{
    client::{Answer, Client},
    failure::{Exit, Failure},
    output::{self, Output, Text},
};

const SET_HELP: &str = "\
Examples:
  everytick calendar set holidays-de --tz Europe/Berlin --yearly 12-25 --date 2027-03-26
  everytick calendar set shutdown --date 2026-12-27/2026-12-31
  everytick calendar set holidays-de --file feiertage.ics --tz Europe/Berlin
  everytick job create report --cron '0 6 * * 1-5' --exclude holidays-de --url https://example.org/h

Replaces all dates of the calendar. Ticks up to the instant of the change use the old dates, later ticks the new dates.
A file is iCalendar with events of whole days, or the JSON of `calendar get -o json`; flags add to it. Events may repeat yearly or
monthly, also on an ordinal weekday (BYDAY=4TH). Other events are left out, and stderr names each with its line.";

/// Maximum number of left-out events that the command lists.
const LEFT_OUT_NAMED_MAX: usize = 20;

/// With the names of the fields, a line fits 80 columns.
const LINE_CHARS: usize = 68;

const GET_HELP: &str = "\
Examples:
  everytick calendar get holidays-de
  everytick calendar get holidays-de -o json";

const LIST_HELP: &str = "\
Examples:
  everytick calendar list
  everytick calendar list -o json | jq -r '.items[].name'";

const DELETE_HELP: &str = "\
Examples:
  everytick calendar delete holidays-de

A calendar that a job uses cannot be deleted; first run `everytick job update JOB --no-exclude`.";

#[derive(Debug, Subcommand)]
pub(crate) enum CalendarCommand {
    /// Create a calendar, or replace its dates
    #[command(after_help = SET_HELP)]
    Set(Set),
    /// Show one calendar
    #[command(after_help = GET_HELP)]
    Get(CalendarName),
    /// List calendars by name
    #[command(after_help = LIST_HELP)]
    List(PageFlags),
    /// Delete a calendar that no job uses
    #[command(after_help = DELETE_HELP)]
    Delete(Delete),
}

#[derive(Debug, Args)]
pub(crate) struct CalendarName {
    /// The calendar's name
    #[arg(value_name = "NAME", value_parser = calendar_name)]
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    #[command(flatten)]
    calendar: CalendarName,
    /// Exclude a date, or a range such as 2026-12-27/2026-12-31; repeatable
    #[arg(long, value_name = "DATE")]
    date: Vec<Days>,
    /// Exclude a day of every year, as month and day, such as 12-25; repeatable
    #[arg(long, value_name = "MM-DD")]
    yearly: Vec<MonthDay>,
    /// Read an iCalendar file, or a calendar as JSON; - is stdin
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Use the days of this time zone, an IANA name [default: the zone of the file, else UTC]
    #[arg(long, visible_alias = "timezone", value_name = "ZONE")]
    tz: Option<String>,
    /// Change the calendar only if it has this version; otherwise exit with 4
    #[arg(long, value_name = "VERSION", value_parser = super::number::whole::<i64>(1..=i64::MAX))]
    if_version: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    calendar: CalendarName,
    /// Delete the calendar only if it has this version; otherwise exit with 4
    #[arg(long, value_name = "VERSION", value_parser = super::number::whole::<i64>(1..=i64::MAX))]
    if_version: Option<i64>,
}

fn calendar_name(text: &str) -> Result<String, String> {
    check_calendar_name(text).map(|()| text.to_owned()).map_err(|invalid| invalid.message)
}

/// The fields of the API's answer that tables show.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CalendarView {
    name: String,
    timezone: String,
    dates: Vec<String>,
    yearly: Vec<String>,
    jobs: u64,
    version: i64,
    created_at: String,
    created_by: String,
    updated_at: String,
    effective_at: Option<String>,
}

impl CalendarCommand {
    pub(crate) async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        match self {
            Self::Set(set) => set.run(client, out).await,
            Self::Get(CalendarName { name }) => {
                let answer = client.get(&["calendars", &name]).send().await?;
                if out.is_json() { Ok(out.json(&answer)?) } else { print(out, answer.read()?) }
            }
            Self::List(page) => list(client, out, page).await,
            Self::Delete(Delete { calendar: CalendarName { name }, if_version }) => {
                let request = client.delete(&["calendars", &name]).header_some("if-match", if_version.map(tag));
                done(out, request.send().await?, "deleted")
            }
        }
    }
}

impl Set {
    async fn run(self, client: &Client, out: Output) -> anyhow::Result<()> {
        if self.file.is_none() && self.date.is_empty() && self.yearly.is_empty() {
            return Err(Failure::usage("no dates; set --date, --yearly or --file").into());
        }
        let mut calendar = match &self.file {
            None => Map::new(),
            Some(path) => read(path, self.tz.as_deref())?,
        };
        if let Some(zone) = self.tz {
            calendar.insert("timezone".to_owned(), zone.into());
        }
        add(&mut calendar, "dates", self.date.iter().map(ToString::to_string));
        add(&mut calendar, "yearly", self.yearly.iter().map(ToString::to_string));
        let request = client.put(&["calendars", &self.calendar.name]).header_some("if-match", self.if_version.map(tag));
        done(out, request.json(&calendar)?.send().await?, "set")
    }
}

/// Adds texts to the list of a field. The server refuses a field that is not a list.
fn add(calendar: &mut Map<String, Value>, field: &str, texts: impl Iterator<Item = String>) {
    let texts: Vec<Value> = texts.map(Value::from).collect();
    if texts.is_empty() {
        return;
    }
    match calendar.entry(field).or_insert_with(|| json!([])) {
        Value::Array(list) => list.extend(texts),
        null @ Value::Null => *null = texts.into(),
        _ => {}
    }
}

/// The calendar in a file, as a JSON object. The server checks its fields.
fn read(path: &Path, zone: Option<&str>) -> anyhow::Result<Map<String, Value>> {
    let text = job::read_text("--file", path)?;
    let shown = format!("--file: {}", path.display());
    if !text.trim_start().starts_with(['{', '[', '"']) {
        let imported = from_ics(&text, zone, SystemClock.now()).map_err(|found| wrong(&shown, &found))?;
        note_left_out(&path.display().to_string(), &imported.left_out);
        return Ok(serde_json::from_value(serde_json::to_value(&imported.spec)?)?);
    }
    match serde_json::from_str(&text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Failure::usage(format!(
            "{shown} does not contain a calendar as a JSON object; write it like {}",
            r#"{"timezone": "Europe/Berlin", "dates": ["2027-03-26"], "yearly": ["12-25"]}"#
        ))
        .into()),
        Err(error) => {
            let why = json_syntax(&error.to_string());
            Err(Failure::usage(format!("{shown} does not contain a calendar as JSON: {why}")).into())
        }
    }
}

fn note_left_out(file: &str, left_out: &[LeftOut]) {
    for LeftOut { line, event, reason } in left_out.iter().take(LEFT_OUT_NAMED_MAX) {
        output::note_line(&format!("{file}: line {line}: left out {event:?}: {reason}"));
    }
    if let Some(more @ 1..) = left_out.len().checked_sub(LEFT_OUT_NAMED_MAX) {
        output::note_line(&format!("{file}: left out {more} more events"));
    }
}

fn wrong(what: &str, found: &[Invalid]) -> Failure {
    let errors: Vec<String> = found.iter().map(ToString::to_string).collect();
    Failure::new(Exit::Usage, format!("{what}: {}", errors.join("; ")))
}

fn tag(version: i64) -> String {
    format!("\"{version}\"")
}

fn done(out: Output, answer: Answer, verb: &str) -> anyhow::Result<()> {
    if out.is_json() {
        return Ok(out.json(&answer)?);
    }
    let calendar: CalendarView = answer.read()?;
    let since = calendar.effective_at.map(|at| format!("; in effect since {}", out.time(at))).unwrap_or_default();
    let jobs = match calendar.jobs {
        0 => String::new(),
        1 => "; 1 job uses it".to_owned(),
        many => format!("; {many} jobs use it"),
    };
    Ok(out.line(&format!("{} {verb}{since}{jobs}", calendar.name))?)
}

async fn list(client: &Client, out: Output, page: PageFlags) -> anyhow::Result<()> {
    let answer = client.get(&["calendars"]).list(page.limit, page.cursor).await?;
    if out.is_json() {
        return Ok(out.json(&answer)?);
    }
    let calendars: Vec<CalendarView> = answer.read()?;
    if calendars.is_empty() {
        output::note_line("no calendars");
        return Ok(());
    }
    let rows = calendars.into_iter().map(|calendar| {
        vec![
            Text::strong(&calendar.name),
            Text::plain(&calendar.timezone),
            Text::number(calendar.dates.len().to_string()),
            Text::number(calendar.yearly.len().to_string()),
            Text::number(calendar.jobs.to_string()),
            Text::plain(out.time(&calendar.updated_at)),
        ]
    });
    out.table(&["NAME", "ZONE", "DATES", "YEARLY", "JOBS", "UPDATED"], rows.collect())?;
    run::note_more(&answer);
    Ok(())
}

/// The words in lines of at most [`LINE_CHARS`] characters.
fn lines(words: &[String]) -> String {
    let (mut text, mut chars) = (String::new(), 0);
    for word in words {
        let fits = chars + 1 + word.len() <= LINE_CHARS;
        match (chars, fits) {
            (0, _) => {}
            (_, true) => text.push(' '),
            (_, false) => text.push('\n'),
        }
        chars = if chars > 0 && fits { chars + 1 + word.len() } else { word.len() };
        text.push_str(word);
    }
    text
}

fn print(out: Output, calendar: CalendarView) -> anyhow::Result<()> {
    Ok(out.facts(vec![
        ("Name", Text::strong(&calendar.name)),
        ("Zone", Text::plain(&calendar.timezone)),
        ("Dates", Text::plain(lines(&calendar.dates))),
        ("Yearly", Text::plain(lines(&calendar.yearly))),
        ("Jobs", Text::plain(calendar.jobs.to_string())),
        ("Version", Text::plain(calendar.version.to_string())),
        ("Created", Text::plain(format!("{} by {}", out.time(&calendar.created_at), calendar.created_by))),
        ("Updated", Text::plain(out.time(&calendar.updated_at))),
    ])?)
}
