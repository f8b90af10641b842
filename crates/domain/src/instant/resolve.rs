//! The meaning of a parsed time at a present time in a zone, by the rules in the header of the module.

use jiff::civil::{Date, Time};

use super::{
    InstantText, LocalZone,
    parse::{Day, Direction, Form},
    zone::Reached,
};
use crate::time::DbTime;

/// How a flag reads a duration without `ago` or `in`, and a time of day without a date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lean {
    /// For bounds of the history: `2h` is 2 hours ago, `22:00` is the last 22:00 up to now.
    Past,
    /// For plans: `2h` is in 2 hours, `22:00` is the next 22:00 after now.
    Future,
    /// For instants in the past or the future: `2h` is 2 hours ago, `22:00` is today.
    Either,
}

/// The instant, and how the text was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    pub at: DbTime,
    /// The instant in the zone, with a remark if clocks change there: `2026-11-17T02:00:00+01:00 (Europe/Paris)`.
    /// `None` if the text is RFC 3339, which has only one meaning.
    pub reading: Option<String>,
}

impl InstantText {
    /// The instant that the text means at `now` in `zone`.
    ///
    /// # Errors
    /// The instant is before 1970 or after [`DbTime::MAX`]. The message names the text and its reading.
    pub fn resolve(&self, now: DbTime, zone: &LocalZone, lean: Lean) -> Result<Resolved, String> {
        let (at, zone, remark) = match &self.form {
            Form::Exact(at) => return Ok(Resolved { at: *at, reading: None }),
            Form::Now => (now, zone, None),
            Form::Elapsed { span, direction } => {
                let future = direction.map_or(lean == Lean::Future, |direction| direction == Direction::Future);
                (if future { now.plus(*span) } else { now.minus(*span) }, zone, None)
            }
            Form::Local { day, time, zone: named } => {
                let zone = named.as_ref().unwrap_or(zone);
                let (date, time) = (date(*day, *time, now, zone, lean), time.unwrap_or(Time::midnight()));
                let reached = date.and_then(|date| zone.reach(date.to_datetime(time)));
                let reached = reached.ok_or_else(|| self.out_of_range())?;
                (reached.at(), zone, remark(reached, time, zone))
            }
        };
        if !(DbTime::EPOCH..=DbTime::MAX).contains(&at) {
            return Err(self.out_of_range());
        }
        let remark = remark.map(|remark| format!("; {remark}")).unwrap_or_default();
        let reading = Some(format!("{} ({}{remark})", zone.show(at), zone.name()));
        Ok(Resolved { at, reading })
    }

    /// When the day ends, for a text that names a day without a time of day.
    #[must_use]
    pub fn end_of_day(&self, now: DbTime, zone: &LocalZone) -> Option<DbTime> {
        let Form::Local { day: day @ Some(_), time: None, zone: named } = &self.form else { return None };
        let zone = named.as_ref().unwrap_or(zone);
        let next = date(*day, None, now, zone, Lean::Either)?.tomorrow().ok()?;
        zone.reach(next.to_datetime(Time::midnight())).map(Reached::at)
    }

    fn out_of_range(&self) -> String {
        format!("{:?} is outside {} to {}", self.text, DbTime::EPOCH, DbTime::MAX)
    }
}

impl Reached {
    const fn at(self) -> DbTime {
        match self {
            Self::Once(at) | Self::AfterGap(at) | Self::Twice { first: at, .. } => at,
        }
    }
}

/// `None` beyond the range of dates.
fn date(day: Option<Day>, time: Option<Time>, now: DbTime, zone: &LocalZone, lean: Lean) -> Option<Date> {
    let today = zone.civil(now).date();
    match (day, time) {
        (Some(Day::Date(date)), _) => Some(date),
        (Some(Day::Yesterday), _) => today.yesterday().ok(),
        (Some(Day::Tomorrow), _) => today.tomorrow().ok(),
        (Some(Day::Today), _) | (None, None) => Some(today),
        (None, Some(time)) => {
            let at = zone.reach(today.to_datetime(time))?.at();
            match lean {
                Lean::Past if at > now => today.yesterday().ok(),
                Lean::Future if at <= now => today.tomorrow().ok(),
                Lean::Past | Lean::Future | Lean::Either => Some(today),
            }
        }
    }
}

fn remark(reached: Reached, time: Time, zone: &LocalZone) -> Option<String> {
    let clock = if time.second() == 0 { format!("{}", time.strftime("%H:%M")) } else { time.to_string() };
    match reached {
        Reached::Once(_) => None,
        Reached::AfterGap(_) => {
            Some(format!("{clock} does not exist on this day: this is the first instant after the clock change"))
        }
        Reached::Twice { second, .. } => {
            Some(format!("{clock} comes twice on this day: this is the first; the second is {}", zone.show(second)))
        }
    }
}
