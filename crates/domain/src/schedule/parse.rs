//! Parses a cron expression into items. Errors name the field and the position. Uses neither a clock nor a time zone.

use crate::invalid::Invalid;

use super::{crontab_line, hashed, text};

/// The longest accepted expression in bytes, including a zone prefix.
pub const EXPRESSION_BYTES_MAX: usize = 255;

/// A field of an expression, in the order of the seven-field form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Month,
    Weekday,
    Year,
}

/// The name of a field in messages, and its bounds.
impl Unit {
    const ALL: [Self; 7] = [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Month, Self::Weekday, Self::Year];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day of month",
            Self::Month => "month",
            Self::Weekday => "day of week",
            Self::Year => "year",
        }
    }

    pub(super) const fn bounds(self) -> (u16, u16) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::Day => (1, 31),
            Self::Month => (1, 12),
            Self::Weekday => (0, 7),
            Self::Year => (1, 9999),
        }
    }

    /// The values that `*` means, and where a step over it begins. Years step from 1970, so that `*/2` means even years.
    pub(super) const fn whole(self) -> (u16, u16) {
        match self {
            Self::Weekday => (0, 6),
            Self::Year => (1970, 9999),
            _ => self.bounds(),
        }
    }

    /// The values that `H` may take: days that every month has, and each weekday once.
    const fn hashed(self) -> (u16, u16) {
        match self {
            Self::Day => (1, 28),
            _ => self.whole(),
        }
    }

    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Month => &text::MONTHS_SHORT,
            Self::Weekday => &text::WEEKDAYS_SHORT,
            _ => &[],
        }
    }
}

/// One item of a field's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Item {
    /// `*`, or `?` in a day field
    All,
    /// `*/n`
    AllBy(u16),
    One(u16),
    /// `a-b` or `a-b/n`; the default step is 1.
    Range {
        from: u16,
        to: u16,
        step: u16,
    },
    /// `L`
    LastDay,
    /// `LW`: the last working day (Monday to Friday) of the month.
    LastWorkday,
    /// `15W`: the working day (Monday to Friday) nearest to the 15th, within the month.
    NearestWorkday(u16),
    /// `FRI#2`
    Nth {
        weekday: u16,
        nth: u16,
    },
    /// `FRIL`, `FRI#L`
    LastOf(u16),
}

/// How day of month and day of week combine when both are restricted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Days {
    Either,
    /// `+` before the weekday.
    Both,
}

/// A parsed expression. `fields` are in the order of [`Unit`].
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) fields: [Vec<Item>; 7],
    pub(super) days: Days,
    /// The expression with a value for every `H`; unchanged if it has no `H`.
    pub(super) resolved: String,
}

impl Expression {
    pub(super) fn field(&self, unit: Unit) -> &[Item] {
        &self.fields[unit as usize]
    }
}

/// Whether a field is `*` or `?`. A step such as `*/2` is a restriction.
pub(super) fn unrestricted(field: &[Item]) -> bool {
    field == [Item::All]
}

/// Parses `written`. Each `H` becomes a value hashed from `seed`; without a seed, `H` is refused.
pub(super) fn parse(written: &str, seed: Option<&str>) -> Result<Expression, Vec<Invalid>> {
    parse_fields(written, seed).map_err(|wrong| match crontab_line::refusal(written) {
        Some(message) => vec![Invalid::new("cron", message)],
        None => wrong,
    })
}

pub(super) fn parse_fields(written: &str, seed: Option<&str>) -> Result<Expression, Vec<Invalid>> {
    check_text(written).map_err(|message| vec![Invalid::new("cron", message)])?;
    let expanded = nickname(written.trim()).map_err(|message| vec![Invalid::new("cron", message)])?;
    let mut words = words(expanded.unwrap_or(written));
    let units: &[Unit] = match words.len() {
        5 => &Unit::ALL[1..6],
        6 => &Unit::ALL[..6],
        7 => &Unit::ALL,
        n => {
            let fields = if n == 1 { "field" } else { "fields" };
            let message = format!(
                "{written:?} has {n} {fields}; a cron expression has 5 (minute hour day month weekday), 6 (seconds first) \
                 or 7 (year last)"
            );
            return Err(vec![Invalid::new("cron", message)]);
        }
    };

    let mut fields = [vec![Item::One(0)], vec![], vec![], vec![], vec![], vec![], vec![Item::All]];
    let mut days = Days::Either;
    let mut wrong = Vec::new();
    let mut resolved = Vec::new();
    for (unit, word) in units.iter().copied().zip(&mut words) {
        let mut prefix = "";
        if unit == Unit::Weekday
            && let Some(rest) = word.text.strip_prefix('+')
        {
            (word.text, word.position, days, prefix) = (rest, word.position + 1, Days::Both, "+");
        }
        let read = field(unit, word, seed, &mut wrong);
        resolved.push(format!("{prefix}{}", read.resolved));
        fields[unit as usize] = read.items;
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let hashed = expanded.is_none() && words.iter().any(|word| word.text.split(',').any(begins_with_hash));
    let resolved = if hashed { resolved.join(" ") } else { written.to_owned() };
    Ok(Expression { fields, days, resolved })
}

fn check_text(written: &str) -> Result<(), String> {
    if written.len() > EXPRESSION_BYTES_MAX {
        return Err(format!("the expression has {} bytes; at most {EXPRESSION_BYTES_MAX} are allowed", written.len()));
    }
    if let Some((before, odd)) = written.chars().enumerate().find(|(_, c)| !c.is_ascii()) {
        return Err(format!("{odd:?} at position {} is not ASCII; write digits as 0-9", before + 1));
    }
    if written.trim().is_empty() {
        return Err("the expression is empty; write five fields, such as \"0 2 * * *\"".to_owned());
    }
    Ok(())
}

pub(super) const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The fields that a nickname means. Nicknames are lower case, as in OCPS 1.1.
fn nickname(written: &str) -> Result<Option<&'static str>, String> {
    if !written.starts_with('@') {
        return Ok(None);
    }
    if let Some((_, fields)) = NICKNAMES.iter().find(|(name, _)| *name == written) {
        return Ok(Some(fields));
    }
    let lower = written.to_ascii_lowercase();
    Err(if lower.starts_with("@reboot") {
        "@reboot is not supported: it names no time; write a time, such as @hourly".to_owned()
    } else if NICKNAMES.iter().any(|(name, _)| *name == lower) {
        format!("{written:?} must be written in lower case: {lower}")
    } else {
        let known: Vec<_> = NICKNAMES.iter().map(|(name, _)| *name).collect();
        format!(
            "{written:?} is not a nickname; the nicknames are {} and @every, such as \"@every 90s\"",
            known.join(", ")
        )
    })
}

/// A word of the expression and its position, counted from 1.
struct Word<'a> {
    text: &'a str,
    position: usize,
}

fn words(written: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut at = 0;
    for text in written.split(|c: char| c.is_ascii_whitespace()) {
        if !text.is_empty() {
            words.push(Word { text, position: at + 1 });
        }
        at += text.len() + 1;
    }
    words
}

struct Read {
    items: Vec<Item>,
    resolved: String,
}

fn field(unit: Unit, word: &Word<'_>, seed: Option<&str>, wrong: &mut Vec<Invalid>) -> Read {
    let mut items = Vec::new();
    let mut resolved = Vec::new();
    let listed = word.text.contains(',');
    let mut position = word.position;
    for text in word.text.split(',') {
        let read = check_alone(text, listed).and_then(|()| item(unit, text, seed));
        match read {
            Ok((item, text)) => {
                items.push(item);
                resolved.push(text);
            }
            Err(message) => {
                wrong.push(Invalid::new("cron", format!("{}: {message} (position {position})", unit.name())));
            }
        }
        position += text.len() + 1;
    }
    Read { items, resolved: resolved.join(",") }
}

/// `?` and `W` must be the only item of their field (OCPS 1.3 and 1.4).
fn check_alone(text: &str, listed: bool) -> Result<(), String> {
    if listed && text == "?" {
        return Err("? must be alone in its field, not in a list".to_owned());
    }
    let number = text.trim_end_matches(['w', 'W']);
    let nearest = number.len() < text.len() && (number.eq_ignore_ascii_case("L") || is_number(number));
    if listed && nearest {
        return Err(format!("{text} must be alone in its field, not in a list; W applies to a single day"));
    }
    Ok(())
}

/// The item, and its text with `H` resolved.
fn item(unit: Unit, written: &str, seed: Option<&str>) -> Result<(Item, String), String> {
    if written.is_empty() {
        return Err("an item of the list is empty".to_owned());
    }
    let (base, step) = match written.split_once('/') {
        None => (written, None),
        Some((base, step)) => (base, Some(step_of(unit, written, step)?)),
    };
    if begins_with_hash(base) {
        let text = hash(unit, written, base, step, seed)?;
        return item(unit, &text, None).map(|(item, _)| (item, text.clone()));
    }
    let read = match (base, step) {
        ("*", None) => Item::All,
        ("*", Some(step)) => Item::AllBy(step),
        ("?", None) if matches!(unit, Unit::Day | Unit::Weekday) => Item::All,
        ("?", None) => return Err("? is allowed only in the day fields; write *".to_owned()),
        ("?", Some(_)) => return Err(format!("{written} has a step on ?; write *")),
        ("", _) => return Err(format!("{written} has a step but no range; write *{written}")),
        _ => match base.split_once('-') {
            Some((from, to)) => range(unit, written, from, to, step.unwrap_or(1))?,
            None if step.is_some() => {
                let (_, max) = unit.bounds();
                return Err(format!(
                    "{written} has a step on a single value; write a range, such as {base}-{max}/{}",
                    step.unwrap_or(1)
                ));
            }
            None => single(unit, base)?,
        },
    };
    Ok((read, written.to_owned()))
}

fn step_of(unit: Unit, written: &str, step: &str) -> Result<u16, String> {
    if !is_number(step) {
        return Err(format!("{written} has the step {step:?}, which is not a number"));
    }
    let (_, max) = unit.bounds();
    match number(step) {
        0 => Err(format!("{written} has a step of 0; the smallest is 1")),
        step if step > u32::from(max) => {
            Err(format!("{written} has a step larger than the range; the largest is {max}"))
        }
        step => Ok(u16::try_from(step).unwrap_or(max)),
    }
}

fn range(unit: Unit, written: &str, from: &str, to: &str, step: u16) -> Result<Item, String> {
    if from.is_empty() || to.is_empty() || to.contains('-') {
        return Err(format!("{written} is not a range; write it like 1-5"));
    }
    if unit == Unit::Day && from.eq_ignore_ascii_case("L") {
        return Err(format!(
            "{written} is not supported: it counts days before the end of the month; write L for the last day, LW for the last \
             working day, or days such as 28"
        ));
    }
    let modified = |text: &str| text.len() > 1 && is_number(&text[..1]) && !is_number(text);
    if modified(from) || modified(to) {
        return Err(format!("{written} is not a range of plain values; L, W and # apply only to single days"));
    }
    let (low, mut high) = (value(unit, from)?, value(unit, to)?);
    // A week may end on Sunday: FRI-SUN is 5-7.
    if unit == Unit::Weekday && to.eq_ignore_ascii_case("SUN") && low > 0 {
        high = 7;
    }
    if low > high {
        return Err(format!("{written} is inverted: {from} is after {to}; write two ranges in a list"));
    }
    Ok(Item::Range { from: low, to: high, step })
}

fn single(unit: Unit, written: &str) -> Result<Item, String> {
    let upper = written.to_ascii_uppercase();
    match unit {
        Unit::Day => {
            if upper == "L" {
                return Ok(Item::LastDay);
            }
            if let Some(day) = upper.strip_suffix('W') {
                return match day {
                    "L" => Ok(Item::LastWorkday),
                    "" => Err(format!("{written} names no day; write it like 15W")),
                    day => value(unit, day).map(Item::NearestWorkday),
                };
            }
        }
        Unit::Weekday => {
            if upper == "L" {
                return Err(format!("{written} names no weekday; write it like FRI#L"));
            }
            if let Some((weekday, nth)) = upper.split_once('#') {
                let weekday = value(unit, weekday)?;
                return match nth {
                    "L" => Ok(Item::LastOf(weekday)),
                    "1" | "2" | "3" | "4" | "5" => {
                        Ok(Item::Nth { weekday, nth: u16::try_from(number(nth)).unwrap_or(1) })
                    }
                    _ => Err(format!("{written} has {nth:?} after #; it must be 1-5 or L")),
                };
            }
            if let Some(weekday) = upper.strip_suffix('L')
                && !weekday.is_empty()
            {
                return value(unit, weekday).map(Item::LastOf);
            }
        }
        _ => {}
    }
    value(unit, written).map(Item::One)
}

fn value(unit: Unit, written: &str) -> Result<u16, String> {
    let (min, max) = unit.bounds();
    if is_number(written) {
        let number = number(written);
        return u16::try_from(number)
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("{written} is outside {min}-{max}"));
    }
    let named = unit.names().iter().position(|name| name.eq_ignore_ascii_case(written));
    if let Some(index) = named.and_then(|index| u16::try_from(index).ok()) {
        return Ok(if unit == Unit::Month { index + 1 } else { index });
    }
    if let [first, .., last] = unit.names()
        && !written.is_empty()
        && written.bytes().all(|b| b.is_ascii_alphabetic())
    {
        return Err(format!("{written} is an unknown name; the names are {first} to {last}"));
    }
    Err(format!("{written:?} is not a value; it must be {min}-{max}"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The value of digits. A number that does not fit is out of every range anyway.
fn number(digits: &str) -> u32 {
    digits.parse().unwrap_or(u32::MAX)
}

/// Whether an item is an `H`, such as `H`, `H/15` or `H(0-29)`. No month or weekday name begins with H.
fn begins_with_hash(item: &str) -> bool {
    item.starts_with(['H', 'h'])
}

/// The text that replaces an `H`: a value, or with a step a range, in the syntax of the dialect.
fn hash(unit: Unit, written: &str, base: &str, step: Option<u16>, seed: Option<&str>) -> Result<String, String> {
    let Some(seed) = seed else {
        return Err(format!("{written} has an H, which can be resolved only for a job"));
    };
    if unit == Unit::Year {
        return Err(format!("{written} has an H, which is not allowed for years; write a year"));
    }
    let (from, to) = match &base[1..] {
        "" => unit.hashed(),
        limited => {
            let inside = limited.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            let (from, to) = inside
                .and_then(|range| range.split_once('-'))
                .ok_or_else(|| format!("{written} is not an H; write H, H/15, H(0-29) or H(0-29)/10"))?;
            match range(unit, written, from, to, 1)? {
                Item::Range { from, to, .. } => (from, to),
                _ => unit.hashed(),
            }
        }
    };
    let hash = hashed::field(seed, unit as u8);
    let pick = |count: u16| from + u16::try_from(hash % u64::from(count.max(1))).unwrap_or(0);
    let values = to - from + 1;
    Ok(match step {
        None => pick(values).to_string(),
        Some(step) => format!("{}-{to}/{step}", pick(step.min(values))),
    })
}
