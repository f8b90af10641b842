//! Stand-in until the schedule branch lands: `every` and `at` only.
use crate::{ids::JobId, invalid::Invalid, time::{DbTime, Span}};
use serde::{Deserialize, Serialize};
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScheduleSpec { pub timing: Timing, pub starts_at: Option<DbTime>, pub ends_at: Option<DbTime>, pub jitter: Option<Span>, pub exclude: Vec<String> }
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing { Every { every: Span }, At { at: DbTime } }
#[derive(Clone, Debug)]
pub struct Schedule { spec: ScheduleSpec }
impl Schedule {
    pub fn compile(spec: &ScheduleSpec) -> Result<Self, Vec<Invalid>> { Ok(Self { spec: spec.clone() }) }
    pub fn next_after(&self, after: DbTime) -> Option<DbTime> {
        match self.spec.timing {
            Timing::At { at } => (at > after).then_some(at),
            Timing::Every { every } => {
                let e = every.as_millis() as i64;
                Some(DbTime::from_millis(after.millis().div_euclid(e) * e + e))
            }
        }
    }
    pub fn first_from(&self, from: DbTime) -> Option<DbTime> { self.next_after(DbTime::from_millis(from.millis() - 1)) }
    pub fn ticks(&self, from: DbTime, to: DbTime) -> impl Iterator<Item = DbTime> + '_ {
        std::iter::successors(self.first_from(from), |t| self.next_after(*t)).take_while(move |t| *t <= to)
    }
    pub fn count(&self, from: DbTime, to: DbTime) -> u64 { self.ticks(from, to).count() as u64 }
    pub fn last_up_to(&self, from: DbTime, to: DbTime) -> Option<DbTime> { self.ticks(from, to).last() }
    pub fn newest(&self, from: DbTime, to: DbTime, n: usize) -> Vec<DbTime> { let v: Vec<_> = self.ticks(from, to).collect(); v[v.len().saturating_sub(n)..].to_vec() }
    pub fn period_at(&self, tick: DbTime) -> Option<Span> { self.next_after(tick).map(|n| n.since(tick)) }
    pub fn due_at(&self, _job: JobId, tick: DbTime) -> DbTime { tick }
    pub fn local(&self, tick: DbTime) -> String { tick.to_string() }
}
