//! The zone in which commands read and show times: UTC with `--utc`, else the job's zone, else the local zone.
//! The rules for reading are in [`everytick_domain::instant`]; this file supplies the present time and the zone.

use std::sync::LazyLock;

use everytick_domain::{
    instant::{InstantText, Lean, LocalZone},
    time::DbTime,
};
use everytick_store::{SystemClock, WallClock};
use jiff::tz::TimeZone;

use crate::{failure::Failure, output::note_line};

static LOCAL: LazyLock<LocalZone> = LazyLock::new(|| LocalZone::system(TimeZone::system()));

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    utc: bool,
    /// The zone of the job that the output is about.
    job: Option<&'static str>,
}

impl Times {
    pub(crate) const fn new(utc: bool) -> Self {
        Self { utc, job: None }
    }

    /// `job` is the name of the job's zone, if the command is about one job and it has a zone.
    pub(crate) fn in_zone(self, job: Option<&str>) -> Self {
        Self { job: job.and_then(LocalZone::constant_name), ..self }
    }

    /// The name of the local zone. `None` if it is UTC, or has no name that servers know.
    pub(crate) fn local_name() -> Option<&'static str> {
        LocalZone::constant_name(LOCAL.name()).filter(|_| *LOCAL != LocalZone::utc())
    }

    pub(crate) const fn is_utc(self) -> bool {
        self.utc
    }

    /// An instant of an answer as RFC 3339 in the zone. A text that is not an instant is returned unchanged.
    pub(crate) fn show(self, at: &str) -> String {
        at.parse().map_or_else(|_| at.to_owned(), |at| self.zone(self.job).show(at))
    }

    fn zone(self, job: Option<&str>) -> LocalZone {
        if self.utc {
            return LocalZone::utc();
        }
        job.and_then(|name| LocalZone::named(name).ok()).unwrap_or_else(|| LOCAL.clone())
    }

    /// Resolves the value of a flag and prints how it was read, unless it was RFC 3339.
    pub(crate) fn read(self, flag: &str, text: &InstantText, lean: Lean, job: Option<&str>) -> Result<DbTime, Failure> {
        let resolved = text.resolve(SystemClock.now(), &self.zone(job), lean);
        let resolved = resolved.map_err(|wrong| Failure::usage(format!("--{flag}: {wrong}")))?;
        if let Some(reading) = &resolved.reading {
            note_line(&format!("{} {reading}", flag.replace('-', "_")));
        }
        Ok(resolved.at)
    }

    /// As [`read`](Self::read). For a day without a time of day, also returns the end of the day.
    pub(crate) fn read_period(
        self,
        flag: &str,
        text: &InstantText,
        lean: Lean,
        job: Option<&str>,
    ) -> Result<(DbTime, Option<DbTime>), Failure> {
        let from = self.read(flag, text, lean, job)?;
        Ok((from, text.end_of_day(SystemClock.now(), &self.zone(job))))
    }
}
