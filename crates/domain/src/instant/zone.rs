//! The zone in which times are read and shown.

use jiff::{
    civil::DateTime,
    tz::{AmbiguousOffset, Offset, TimeZone},
};

use crate::{
    schedule::{Zone, is_utc},
    time::DbTime,
};

/// A time zone with the name that users see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalZone {
    zone: TimeZone,
    name: String,
}

/// The instant of a local time, and what the clocks did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reached {
    Once(DbTime),
    /// Clocks skip the time. This is the first instant after the change.
    AfterGap(DbTime),
    /// The time occurs twice.
    Twice {
        first: DbTime,
        second: DbTime,
    },
}

impl LocalZone {
    #[must_use]
    pub fn utc() -> Self {
        Self { zone: TimeZone::UTC, name: "UTC".to_owned() }
    }

    /// The zone of this IANA name, in any case; or an error that suggests a valid name.
    ///
    /// # Errors
    /// The name is not a time zone. The message suggests a valid name.
    pub fn named(name: &str) -> Result<Self, String> {
        let zone = Zone::named(name)?;
        Ok(Self { zone: zone.time_zone().clone(), name: zone.name().to_owned() })
    }

    /// The zone that the operating system reports. A zone without a name is called `local time`.
    #[must_use]
    pub fn system(zone: TimeZone) -> Self {
        match zone.iana_name() {
            Some(name) => Self { name: name.to_owned(), zone },
            None if zone.is_unknown() => Self::utc(),
            None => Self { name: "local time".to_owned(), zone },
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name as a constant of the zone data, so that it can be copied. `None` for a name that the data does not have.
    #[must_use]
    pub fn constant_name(name: &str) -> Option<&'static str> {
        Zone::constant_name(name)
    }

    /// The instant as RFC 3339 with the offset of this zone, or with `Z` in UTC.
    #[must_use]
    pub fn show(&self, at: DbTime) -> String {
        let at = at.timestamp();
        if is_utc(&self.name) { at.to_string() } else { at.display_with_offset(self.zone.to_offset(at)).to_string() }
    }

    /// The date and time that clocks in this zone show.
    pub(super) fn civil(&self, at: DbTime) -> DateTime {
        self.zone.to_datetime(at.timestamp())
    }

    pub(super) fn reach(&self, local: DateTime) -> Option<Reached> {
        let instant = |offset: Offset| offset.to_timestamp(local).ok();
        Some(match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => Reached::Once(instant(offset)?.into()),
            AmbiguousOffset::Fold { before, after } => {
                Reached::Twice { first: instant(before)?.into(), second: instant(after)?.into() }
            }
            AmbiguousOffset::Gap { before, after } => {
                // The clocks change after `earliest`, and not after `latest`.
                let (earliest, latest) = (instant(after)?, instant(before)?);
                let mut changes = self.zone.following(earliest).take_while(|change| change.timestamp() <= latest);
                let change = changes.find(|change| change.offset() == after).map(|change| change.timestamp());
                Reached::AfterGap(change.unwrap_or(latest).into())
            }
        })
    }
}
