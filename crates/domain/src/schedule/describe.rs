//! Describes a schedule in plain English. It produces only text; other modules decide what fires when.

use crate::time::Span;

use super::{
    Schedule, When,
    parse::{self, Days, Expression, Item, Unit, unrestricted},
    text::{MONTHS, WEEKDAYS, listed, ordinal},
};

/// Up to this many times of day are listed one by one; more are described field by field.
const TIMES_LISTED_MAX: usize = 6;

impl Schedule {
    /// The schedule as a sentence: `At 02:00 every day, in America/New_York`.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.when {
            When::Cron(cron) => match parse::parse(&cron.text, None) {
                Ok(expression) => format!("{}, in {}", describe(&expression), cron.zone.name()),
                Err(_) => cron.text.clone(),
            },
            When::Every { every, .. } => format!("Every {}", span(Span::millis(*every))),
            When::At(at) => format!("Once, at {at}"),
        }
    }
}

/// `15 minutes`, `1 hour and 30 minutes`; a single unit is written without its number, as in `every minute`.
fn span(span: Span) -> String {
    let mut rest = span.as_millis();
    let mut parts = Vec::new();
    for (unit, millis) in
        [("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("millisecond", 1)]
    {
        match rest / millis {
            0 => {}
            1 if parts.is_empty() && rest == millis => return unit.to_owned(),
            1 => parts.push(format!("1 {unit}")),
            n => parts.push(format!("{n} {unit}s")),
        }
        rest %= millis;
    }
    listed(&parts)
}

fn describe(expression: &Expression) -> String {
    let time = Time::of(expression);
    let mut sentence = time.words;
    let date = date(expression);
    if !date.is_empty() {
        sentence.push_str(if time.names_times { " " } else { ", " });
        sentence.push_str(&date);
    } else if time.names_times {
        sentence.push_str(" every day");
    }
    let years = expression.field(Unit::Year);
    if !unrestricted(years) {
        sentence.push_str(&format!(", {}", placed("in", years, Unit::Year)));
    }
    sentence
}

struct Time {
    words: String,
    /// Whether the sentence names times of day, such as `At 02:00`. Then it also needs a day, such as `every day`.
    names_times: bool,
}

impl Time {
    fn of(expression: &Expression) -> Self {
        let (seconds, minutes, hours) =
            (expression.field(Unit::Second), expression.field(Unit::Minute), expression.field(Unit::Hour));
        if let Some(times) = times(seconds, minutes, hours) {
            return Self { words: format!("At {}", listed(&times)), names_times: true };
        }
        if seconds == [Item::One(0)]
            && let [Item::One(minute)] = minutes
        {
            let by = |step: u16| if step == 1 { "hour".to_owned() } else { format!("{step} hours") };
            match hours {
                [Item::All | Item::AllBy(1)] if *minute == 0 => return Self::running("Every hour, on the hour"),
                [Item::All | Item::AllBy(1)] => {
                    let past = if *minute == 1 { "1 minute".to_owned() } else { format!("{minute} minutes") };
                    return Self::running(format!("Every hour at {past} past"));
                }
                [Item::AllBy(step)] => return Self::running(format!("Every {} from 00:{minute:02}", by(*step))),
                [Item::Range { from, to, step }] => {
                    let last = to - (to - from) % step;
                    let words = format!("Every {} from {from:02}:{minute:02} to {last:02}:{minute:02}", by(*step));
                    return Self { words, names_times: true };
                }
                _ => {}
            }
        }
        let mut parts = Vec::new();
        if seconds != [Item::One(0)] {
            parts.push(within(seconds, Unit::Second, "minute"));
        }
        if !matches!(minutes, [Item::All]) || parts.is_empty() {
            parts.push(within(minutes, Unit::Minute, "hour"));
        }
        let mut words = parts.join(", ");
        match hours {
            [Item::All | Item::AllBy(1)] => {}
            [Item::AllBy(step)] => words.push_str(&format!(", in every {} hour from 00:00", ordinal(*step))),
            [Item::Range { from, to, step: 1 }] => words.push_str(&format!(", from {from:02}:00 to {to:02}:59")),
            [Item::Range { from, to, step }] => {
                words.push_str(&format!(", in every {} hour from {from:02}:00 to {to:02}:59", ordinal(*step)));
            }
            [Item::One(hour)] => words.push_str(&format!(", from {hour:02}:00 to {hour:02}:59")),
            _ => words.push_str(&format!(", in the hours {}", items(hours, Unit::Hour))),
        }
        Self::running(capitalised(&words))
    }

    fn running(words: impl Into<String>) -> Self {
        Self { words: words.into(), names_times: false }
    }
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

/// Each time of day, if there are few and all fields are plain values.
fn times(seconds: &[Item], minutes: &[Item], hours: &[Item]) -> Option<Vec<String>> {
    let ones = |field: &[Item]| -> Option<Vec<u16>> {
        let mut values = field
            .iter()
            .map(|item| if let Item::One(value) = item { Some(*value) } else { None })
            .collect::<Option<Vec<_>>>()?;
        values.sort_unstable();
        values.dedup();
        Some(values)
    };
    let (seconds, minutes, hours) = (ones(seconds)?, ones(minutes)?, ones(hours)?);
    if seconds.len() * minutes.len() * hours.len() > TIMES_LISTED_MAX {
        return None;
    }
    let mut times = Vec::new();
    for hour in &hours {
        for minute in &minutes {
            for second in &seconds {
                times.push(match second {
                    0 if seconds.len() == 1 => format!("{hour:02}:{minute:02}"),
                    _ => format!("{hour:02}:{minute:02}:{second:02}"),
                });
            }
        }
    }
    Some(times)
}

/// `every 10 seconds`, `at minutes 5 and 10 of the hour`.
fn within(field: &[Item], unit: Unit, of: &str) -> String {
    let name = unit.name();
    match field {
        [Item::All | Item::AllBy(1)] => format!("every {name}"),
        [Item::AllBy(step)] if 60 % step == 0 => format!("every {step} {name}s"),
        [Item::AllBy(step)] => format!("every {step} {name}s from the start of the {of}"),
        [Item::Range { from, to, step: 1 }] => format!("every {name} from {from} to {to} of the {of}"),
        [Item::Range { from, to, step }] => format!("every {step} {name}s from {name} {from} to {to} of the {of}"),
        [Item::One(value)] => format!("at {name} {value} of the {of}"),
        _ => format!("at {name}s {} of the {of}", items(field, unit)),
    }
}

/// Day, weekday and month: `on the 1st and the 15th of the month`; empty when every day matches.
fn date(expression: &Expression) -> String {
    let (days, weekdays, months) =
        (expression.field(Unit::Day), expression.field(Unit::Weekday), expression.field(Unit::Month));
    let any_month = unrestricted(months);
    let of = match months {
        _ if any_month => " of the month".to_owned(),
        [Item::Range { step: 1, .. }] => format!(" of each month {}", placed("in", months, Unit::Month)),
        _ => format!(" of {}", items(months, Unit::Month)),
    };
    let within = if any_month { String::new() } else { format!(" {}", placed("in", months, Unit::Month)) };
    let counted = weekdays.iter().any(|item| matches!(item, Item::Nth { .. } | Item::LastOf(_)));
    let after_weekday = if counted { &of } else { &within };
    let by_day = placed("on", days, Unit::Day) + &of;
    match (unrestricted(days), unrestricted(weekdays)) {
        (true, true) if any_month => String::new(),
        (true, true) => format!("every day{within}"),
        (false, true) => by_day,
        (true, false) => format!("{}{after_weekday}", placed("on", weekdays, Unit::Weekday)),
        (false, false) => match expression.days {
            Days::Either => {
                format!("{by_day}, and also {}{after_weekday}", placed("on every", weekdays, Unit::Weekday))
            }
            Days::Both => format!("{by_day}, but only if that is {}", either(weekdays)),
        },
    }
}

/// `on Monday and Friday`, but `from Monday to Friday`; `on every` becomes `on` before items such as `the last Friday`.
fn placed(word: &str, field: &[Item], unit: Unit) -> String {
    let named = items(field, unit);
    match field {
        [Item::Range { step: 1, .. }] if word == "on every" => format!("on every day from {named}"),
        [Item::Range { step: 1, .. }] => format!("from {named}"),
        [Item::One(_), ..] => format!("{word} {named}"),
        _ => format!("{} {named}", word.trim_end_matches(" every")),
    }
}

/// `a Monday or a Friday`, `Monday to Friday`, `the last Friday`.
fn either(weekdays: &[Item]) -> String {
    let named: Vec<_> = weekdays
        .iter()
        .map(|item| match item {
            Item::One(_) => format!("a {}", item_words(item, Unit::Weekday)),
            _ => item_words(item, Unit::Weekday),
        })
        .collect();
    named.join(" or ")
}

fn items(field: &[Item], unit: Unit) -> String {
    listed(&field.iter().map(|item| item_words(item, unit)).collect::<Vec<_>>())
}

fn item_words(item: &Item, unit: Unit) -> String {
    match *item {
        Item::All => format!("every {}", plain(unit)),
        Item::AllBy(step) => format!("every {} {}", ordinal(step), plain(unit)),
        Item::One(value) => value_words(value, unit),
        Item::Range { from, to, step: 1 } => format!("{} to {}", value_words(from, unit), value_words(to, unit)),
        Item::Range { from, to, step } => {
            let (from, to) = (value_words(from, unit), value_words(to, unit));
            format!("every {} {} from {from} to {to}", ordinal(step), plain(unit))
        }
        Item::LastDay => "the last day".to_owned(),
        Item::LastWorkday => "the last working day (Monday to Friday)".to_owned(),
        Item::NearestWorkday(day) => format!("the working day (Monday to Friday) nearest the {}", ordinal(day)),
        Item::Nth { weekday, nth } => {
            let nth = ["first", "second", "third", "fourth", "fifth"][usize::from(nth.clamp(1, 5) - 1)];
            format!("the {nth} {}", value_words(weekday, Unit::Weekday))
        }
        Item::LastOf(weekday) => format!("the last {}", value_words(weekday, Unit::Weekday)),
    }
}

fn plain(unit: Unit) -> &'static str {
    match unit {
        Unit::Day => "day",
        Unit::Weekday => "day of the week",
        _ => unit.name(),
    }
}

fn value_words(value: u16, unit: Unit) -> String {
    match unit {
        Unit::Day => format!("the {}", ordinal(value)),
        Unit::Month => MONTHS[usize::from(value.clamp(1, 12) - 1)].to_owned(),
        Unit::Weekday => WEEKDAYS[usize::from(value % 7)].to_owned(),
        Unit::Hour => format!("{value:02}"),
        Unit::Second | Unit::Minute | Unit::Year => value.to_string(),
    }
}
