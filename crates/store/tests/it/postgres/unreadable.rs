//! Damaged rows in PostgreSQL.

use everytick_store::Limits;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use uuid::Uuid;

use super::bench_with;
use crate::unreadable::{Column, Kind, Raw, sound_rows_are_served_beside_damaged_ones};

impl Raw for PgConnection {
    async fn columns(&mut self) -> Vec<Column> {
        let found = sqlx::query(
            "select c.relname::text as relation, a.attname::text as name, a.atttypid::regtype::text as type,
                    array(select k.attname::text from pg_index i join pg_attribute k on k.attrelid = c.oid and k.attnum = any (i.indkey)
                           where i.indrelid = c.oid and i.indisprimary order by k.attnum) as keys,
                    array(select o.attname::text from pg_attribute o where o.attrelid = c.oid and o.attnum > 0) as columns
               from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
              where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
                and c.relname not in ('test_clock', 'schema_steps')
              order by 1, a.attnum",
        )
        .fetch_all(self)
        .await
        .unwrap();
        let kind = |text: &str| match text {
            "smallint" => Some(Kind::Number { max: i16::MAX.into() }),
            "integer" => Some(Kind::Number { max: i32::MAX.into() }),
            "bigint" => Some(Kind::Number { max: i64::MAX }),
            "text" => Some(Kind::Text),
            "jsonb" => Some(Kind::Json),
            "uuid" => Some(Kind::Bytes {
                values: ["'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'00000000-0000-0000-0000-000000000000'"],
            }),
            "bytea" => Some(Kind::Bytes { values: ["'\\x00'", "'\\x'"] }),
            "boolean" => Some(Kind::Flag),
            _ => None,
        };
        let column = |row: &sqlx::postgres::PgRow| {
            let keys: Vec<String> = row.get("keys");
            (!keys.is_empty()).then(|| {
                let type_name: String = row.get("type");
                let kind = kind(&type_name).unwrap_or_else(|| panic!("a column of type {type_name}"));
                Column { table: row.get("relation"), name: row.get("name"), kind, keys, columns: row.get("columns") }
            })
        };
        found.iter().filter_map(column).collect()
    }

    async fn run(&mut self, sql: String) -> Result<u64, String> {
        sqlx::query(AssertSqlSafe(sql))
            .execute(self)
            .await
            .map(|done| done.rows_affected())
            .map_err(|error| error.to_string())
    }

    fn id(id: Uuid) -> String {
        format!("'{id}'")
    }
}

#[tokio::test]
async fn damaged_rows_do_not_stop_other_work() {
    let opened = bench_with(Limits::default()).await;
    let mut raw = opened.connect().await;
    sound_rows_are_served_beside_damaged_ones(&opened.bench, &mut raw, 200).await;
}
