//! Instants and durations as text for users: in the job's zone, or the caller's, with UTC beside it; or in UTC alone.

use crate::{
    instant::LocalZone,
    job::Job,
    schedule::{Schedule, ScheduleSpec, Timing},
    time::{DbTime, Span},
};

/// The zone in which an explanation shows its instants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ShownIn {
    #[default]
    JobZone,
    /// In the job's zone. If the job has none, in the zone of this name, which is that of the caller.
    JobZoneOr(&'static str),
    Utc,
}

/// Shows the instants of a job. A job without a cron expression has no zone.
#[derive(Clone, Copy)]
pub(super) struct Local<'a> {
    spec: Option<&'a ScheduleSpec>,
    schedule: Option<&'a Schedule>,
    shown_in: ShownIn,
}

impl<'a> Local<'a> {
    pub(super) fn of(job: &'a Job, shown_in: ShownIn) -> Self {
        Self { spec: job.spec.schedule.as_ref(), schedule: job.schedule.as_ref(), shown_in }
    }

    /// As [`of`](Self::of), for a run whose job may be unknown.
    pub(super) fn of_some(job: Option<&'a Job>, shown_in: ShownIn) -> Self {
        job.map_or(Self { spec: None, schedule: None, shown_in }, |job| Self::of(job, shown_in))
    }

    pub(super) const fn shown_in(self) -> ShownIn {
        self.shown_in
    }

    /// The zone of the cron expression.
    pub(super) fn zone(self) -> Option<&'a str> {
        match self.spec.map(|spec| &spec.timing) {
            Some(Timing::Cron { timezone, .. }) => Some(timezone),
            _ => None,
        }
    }

    /// The instant in the job's zone: `2026-11-17T02:00:00+01:00`.
    pub(super) fn in_job_zone(self, at: DbTime) -> String {
        self.schedule.map_or_else(|| at.to_string(), |schedule| schedule.local(at))
    }

    /// `2026-11-17T02:00:00+01:00`, or `2026-11-17T01:00:00Z`
    pub(super) fn text(self, at: DbTime) -> String {
        let caller = match self.shown_in {
            ShownIn::Utc => return at.to_string(),
            ShownIn::JobZone => None,
            ShownIn::JobZoneOr(name) => Some(name).filter(|_| self.zone().is_none()),
        };
        let caller = caller.and_then(|name| LocalZone::named(name).ok());
        caller.map_or_else(|| self.in_job_zone(at), |zone| zone.show(at))
    }

    /// `2026-11-17T02:00:00+01:00 (2026-11-17T01:00:00Z)`; UTC alone if that is the zone.
    pub(super) fn both(self, at: DbTime) -> String {
        let (local, utc) = (self.text(at), at.to_string());
        if local == utc { utc } else { format!("{local} ({utc})") }
    }
}

/// A duration with at most two units: `3d4h`, `9h12m`, `40s`.
pub(super) fn about(span: Span) -> Span {
    let ms = span.as_millis();
    let unit = match ms {
        86_400_000.. => 3_600_000,
        3_600_000.. => 60_000,
        1_000.. => 1_000,
        _ => 1,
    };
    Span::millis(ms / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_with_the_units_that_matter() {
        for (span, shown) in
            [("1d2h3m4s", "1d2h"), ("9h12m33s", "9h12m"), ("59m59s999ms", "59m59s"), ("40s5ms", "40s"), ("7ms", "7ms")]
        {
            assert_eq!(about(span.parse().unwrap()).to_string(), shown);
        }
    }
}
