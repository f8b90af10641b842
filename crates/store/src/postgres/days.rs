//! The days: `runs` has one table per day, by the time prefix of the run id. Any node creates them a week ahead. A day
//! is removed by detaching and dropping its table. Both use ways that do not block inserts, which otherwise would queue
//! behind one reader.

use std::{collections::BTreeMap, sync::PoisonError};

use everytick_domain::{
    ids::RunId,
    time::{DbTime, Span},
};
use sqlx::{AssertSqlSafe, Row as _};

use super::{Failed, PostgresStore, open::MIGRATION_LOCK, roles::Login};
use crate::Result;
use crate::tx::Tx as _;

const DAY_MS: i64 = 86_400_000;
/// Days created ahead: enough for a week in which no node creates more.
const AHEAD: i64 = 7;
/// The first start also creates one day back: an `at` may be a little in the past.
const BACK: i64 = 1;
/// A gap of up to this many missing days is filled. After a longer gap, the database starts with new days.
const GAP_MAX: i64 = 400;

/// A day, counted from 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Day(i64);

impl Day {
    pub(super) const fn of(at: DbTime) -> Self {
        Self(at.millis().div_euclid(DAY_MS))
    }
    pub(super) const fn start(self) -> DbTime {
        DbTime::from_millis(self.0 * DAY_MS)
    }
    pub(super) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
    /// `runs_20261116`.
    pub(super) fn table(self) -> String {
        let date: String = self.start().to_string().chars().take(10).filter(char::is_ascii_digit).collect();
        format!("runs_{date}")
    }
    fn from_table(name: &str) -> Option<Self> {
        let date = name.strip_prefix("runs_").filter(|date| date.len() == 8 && date.is_ascii())?;
        let at: DbTime = format!("{}-{}-{}T00:00:00Z", &date[..4], &date[4..6], &date[6..]).parse().ok()?;
        Some(Self::of(at))
    }
    /// Whether this is the name of a day's table.
    pub(super) fn is_table(name: &str) -> bool {
        Self::from_table(name).is_some()
    }
    /// As the functions of the schema take it.
    fn number(self) -> i32 {
        i32::try_from(self.0).unwrap_or(i32::MAX)
    }
    /// The ids of the day: from the first up to but not including the second.
    pub(super) fn ids(self) -> (RunId, RunId) {
        (RunId::floor(self.start()), RunId::floor(self.next().start()))
    }
}

/// The days known to this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Days(BTreeMap<Day, String>);

impl Days {
    pub(super) fn oldest(&self) -> Option<Day> {
        self.0.keys().next().copied()
    }
    pub(super) fn before(&self, day: Day) -> Vec<Day> {
        self.0.range(..day).map(|(day, _)| *day).collect()
    }
    fn newest(&self) -> Option<Day> {
        self.0.keys().next_back().copied()
    }
    fn contains(&self, day: Day) -> bool {
        self.0.contains_key(&day)
    }
    /// Whether the day was dropped, or is before the first one: a tick of it has no table.
    pub(super) fn lack(&self, day: Day) -> bool {
        !self.contains(day) && self.newest().is_some_and(|newest| day < newest)
    }
    /// The table of a run: its day's table, or the parent table if the day is unknown.
    pub(super) fn table(&self, run: RunId) -> String {
        self.0.get(&Day::of(run.time())).map_or_else(|| "runs".to_owned(), Clone::clone)
    }
}

impl PostgresStore {
    pub(super) fn oldest_day(&self) -> Option<Day> {
        self.days.read().unwrap_or_else(PoisonError::into_inner).oldest()
    }

    pub(super) fn known_days(&self) -> Days {
        self.days.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Groups items by the table of their run, each in the order of ids, so that all transactions lock rows in one
    /// order.
    pub(super) fn by_table<T>(&self, mut items: Vec<T>, id: impl Fn(&T) -> RunId) -> BTreeMap<String, Vec<T>> {
        items.sort_by_key(|item| id(item));
        let days = self.days.read().unwrap_or_else(PoisonError::into_inner);
        let mut tables: BTreeMap<String, Vec<T>> = BTreeMap::new();
        for item in items {
            tables.entry(days.table(id(&item))).or_default().push(item);
        }
        tables
    }
}

/// Reads which days exist. Leaves out a day without row-level security that a node of an earlier release made: its runs are
/// addressed by `runs`, until [`make`] has protected it.
pub(super) async fn look(store: &PostgresStore) -> Result<Days> {
    const DOING: &str = "read the day tables";
    let mut read = store.read(DOING).await?;
    let found = read.fetch_all(query!("days/days")).await?;
    let mut days = Days::default();
    for row in &found {
        let (name, usable): (String, bool) = (row.try_get("name").failed(DOING)?, row.try_get("usable").failed(DOING)?);
        if let Some(day) = Day::from_table(&name).filter(|_| usable) {
            days.0.insert(day, name);
        }
    }
    store.days.write().unwrap_or_else(PoisonError::into_inner).clone_from(&days);
    Ok(days)
}

/// Creates the missing days from the day of the lowest cursor up to a week from now. Not earlier ones: all their ticks
/// are recorded. Otherwise, if a waiting run keeps one old day, all days after it would be created and dropped each
/// time.
pub(super) async fn make(store: &PostgresStore) -> Result<Days> {
    const DOING: &str = "create the day tables ahead";
    let mut write = store.write(DOING).await?;
    let now = Day::of(write.read_clock().await?);
    let lowest: Option<i64> = write.scalar(query!("days/lowest_cursor")).await?;
    drop(write);
    let days = look(store).await?;
    let needed = lowest.map_or(now.0, |lowest| Day::of(DbTime::from_millis(lowest)).0).min(now.0 - BACK);
    let from = days.oldest().map_or(now.0 - BACK, |oldest| needed.max(oldest.0).max(now.0 - GAP_MAX).min(now.0));
    let missing: Vec<_> = (from..=now.0 + AHEAD).map(Day).filter(|day| !days.contains(*day)).collect();
    if missing.is_empty() {
        return Ok(days);
    }
    for day in missing {
        make_one(store, day).await?;
    }
    look(store).await
}

/// Creates more days if fewer than a week's are ahead. A failure is not urgent: there is a week to try again.
pub(super) async fn make_ahead(store: &PostgresStore, now: DbTime) {
    let enough = store.known_days().newest().is_some_and(|newest| newest.0 >= Day::of(now).0 + AHEAD);
    if !enough && let Err(error) = make(store).await {
        tracing::warn!(error = %error, "could not create the tables of the days ahead; trying again later");
    }
}

/// Creates the day's table of a run if it is missing, however old. Returns the first id of the next day.
pub(super) async fn make_day_of(store: &PostgresStore, run: RunId) -> Result<RunId> {
    let day = Day::of(run.time());
    if !store.known_days().contains(day) {
        make_one(store, day).await?;
    }
    Ok(day.next().ids().0)
}

/// The first id of the oldest day that a new database needs, given the oldest run to be moved there.
pub(super) fn first_kept(now: DbTime, oldest: Option<RunId>) -> RunId {
    let made = Day(Day::of(now).0 - BACK);
    oldest.map_or(made, |oldest| made.min(Day::of(oldest.time()))).ids().0
}

async fn make_one(store: &PostgresStore, day: Day) -> Result<()> {
    const DOING: &str = "create a day table";
    let mut write = store.write(DOING).await?;
    write.execute(query!("setup/migration_lock", MIGRATION_LOCK)).await?;
    write.execute(query!("days/day_make", day.number())).await?;
    write.commit().await
}

/// Detaches a day. Afterwards every transaction that could write into the day has ended, and none can begin.
pub(super) async fn detach(store: &PostgresStore, day: Day) -> Result<()> {
    const DOING: &str = "detach a day table";
    if store.login == Login::App {
        return detach_by_function(store, day).await;
    }
    let table = day.table();
    // Not in a transaction: the server itself uses two transactions, and waits for readers in between without blocking
    // other sessions.
    let detach = |how: &str| AssertSqlSafe(format!("alter table runs detach partition {table} {how}"));
    match sqlx::raw_sql(detach("concurrently")).execute(&store.pool).await {
        Err(error) if super::code(&error).as_deref() == Some("55000") => {
            sqlx::raw_sql(detach("finalize")).execute(&store.pool).await.failed(DOING)?;
        }
        detached => {
            detached.failed(DOING)?;
        }
    }
    Ok(())
}

/// The same for a role that does not own the tables, which may detach only with a function. A function cannot detach
/// concurrently: other statements on `runs` wait for it, and it waits for readers, for up to 250 ms. Then it fails.
async fn detach_by_function(store: &PostgresStore, day: Day) -> Result<()> {
    let mut write = store.write_slow("detach a day table").await?;
    write.execute(query!("days/day_detach", day.number())).await?;
    write.commit().await
}

/// Attaches a detached day again.
pub(super) async fn attach(store: &PostgresStore, day: Day) -> Result<()> {
    make_one(store, day).await
}

/// Drops the table of a detached day.
pub(super) async fn drop_detached(store: &PostgresStore, day: Day) -> Result<()> {
    const DOING: &str = "drop a day table";
    let mut write = store.write(DOING).await?;
    write.execute(query!("days/day_drop", day.number())).await?;
    write.commit().await
}

/// Days that were being detached when their node died, or that are detached and not dropped. All of them are detached
/// afterwards.
pub(super) async fn half_dropped(store: &PostgresStore) -> Result<Vec<Day>> {
    const DOING: &str = "find half-dropped days";
    let mut read = store.read(DOING).await?;
    let found = read.fetch_all(query!("days/days_going")).await?;
    drop(read);
    let mut days = Vec::new();
    for row in &found {
        let flag = |name| row.try_get::<bool, _>(name).failed(DOING);
        let (name, attached, usable): (String, bool, bool) =
            (row.try_get("name").failed(DOING)?, flag("attached")?, flag("usable")?);
        let Some(day) = Day::from_table(&name) else { continue };
        if attached && store.login == Login::App {
            detach_by_function(store, day).await?;
        } else if attached {
            let text = format!("alter table runs detach partition {} finalize", day.table());
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&store.pool).await.failed(DOING)?;
        }
        if usable {
            days.push(day);
        } else if let Err(error) = attach(store, day).await {
            // A node of an earlier release made it. Attaching protects it, and the next prune detaches it again.
            tracing::warn!(%error, day = day.table(), "could not protect a detached day; trying again later");
        }
    }
    Ok(days)
}

/// An upper bound of the ids of open or recorded runs: tomorrow at this time.
pub(super) fn ahead(now: DbTime) -> RunId {
    RunId::floor(now.plus(Span::days(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_table_is_named_by_its_date_and_the_name_is_parsed_back() {
        let day = Day::of("2026-11-16T23:59:59.999Z".parse().unwrap());
        assert_eq!(day.table(), "runs_20261116");
        assert_eq!(Day::from_table("runs_20261116"), Some(day));
        assert_eq!(day.start().to_string(), "2026-11-16T00:00:00Z");
        for name in ["runs_", "runs_2026111", "runs_20261332", "runs_history", "last_runs"] {
            assert_eq!(Day::from_table(name), None, "{name}");
        }
    }
}
