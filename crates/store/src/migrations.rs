//! The steps of both schemas, in order. A new step is the next file in its folder and the next row here. SQLite files store a
//! checksum of each step. So do not change the text of an old SQLite step, not even a comment: a file with that step would be
//! refused.

/// A step of the schema: its text, and the oldest release (by the number of its last step) that works with it.
pub(crate) struct Step {
    pub name: &'static str,
    pub text: &'static str,
    pub works_from: i32,
}

pub(crate) const POSTGRES: [Step; 12] = [
    Step { name: "first", text: include_str!("../migrations/postgres/0001_first.sql"), works_from: 1 },
    Step { name: "calendars", text: include_str!("../migrations/postgres/0002_calendars.sql"), works_from: 1 },
    Step { name: "queues", text: include_str!("../migrations/postgres/0003_queues.sql"), works_from: 1 },
    Step { name: "backfills", text: include_str!("../migrations/postgres/0004_backfills.sql"), works_from: 1 },
    Step { name: "flows", text: include_str!("../migrations/postgres/0005_flows.sql"), works_from: 1 },
    // The first compact definition raises `works_from`; see `postgres/compact.rs`.
    Step { name: "short", text: include_str!("../migrations/postgres/0006_short.sql"), works_from: 1 },
    Step { name: "trust", text: include_str!("../migrations/postgres/0007_trust.sql"), works_from: 1 },
    Step { name: "first day", text: include_str!("../migrations/postgres/0008_first_day.sql"), works_from: 1 },
    Step { name: "gone nodes", text: include_str!("../migrations/postgres/0009_gone_nodes.sql"), works_from: 1 },
    // The first token raises `works_from`; see `tx/token.rs`.
    Step { name: "access", text: include_str!("../migrations/postgres/0010_access.sql"), works_from: 1 },
    // The first secret raises `works_from`; see `tx/secret.rs`.
    Step { name: "secrets", text: include_str!("../migrations/postgres/0011_secrets.sql"), works_from: 1 },
    // Until the first tenant is created; see `tx/tenant.rs`.
    Step { name: "tenants", text: include_str!("../migrations/postgres/0012_tenants.sql"), works_from: 1 },
];

/// Number, name and text.
pub(crate) const SQLITE: [(i64, &str, &str); 13] = [
    (1, "first", include_str!("../migrations/sqlite/0001_first.sql")),
    (2, "cluster", include_str!("../migrations/sqlite/0002_cluster.sql")),
    (3, "calendars", include_str!("../migrations/sqlite/0003_calendars.sql")),
    (4, "queues", include_str!("../migrations/sqlite/0004_queues.sql")),
    (5, "backfills", include_str!("../migrations/sqlite/0005_backfills.sql")),
    (6, "flows", include_str!("../migrations/sqlite/0006_flows.sql")),
    (7, "trust", include_str!("../migrations/sqlite/0007_trust.sql")),
    (8, "first day", include_str!("../migrations/sqlite/0008_first_day.sql")),
    (9, "gone nodes", include_str!("../migrations/sqlite/0009_gone_nodes.sql")),
    (10, "backlogs", include_str!("../migrations/sqlite/0010_backlogs.sql")),
    (11, "access", include_str!("../migrations/sqlite/0011_access.sql")),
    (12, "secrets", include_str!("../migrations/sqlite/0012_secrets.sql")),
    (13, "tenants", include_str!("../migrations/sqlite/0013_tenants.sql")),
];
