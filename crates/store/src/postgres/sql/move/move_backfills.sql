-- Inserts moved backfills. Primary key: backfills.
-- Arrays: $1 id, $2 tenant, $3 job, $4 from_at, $5 to_at, $6 newest_first, $7 rate_count, $8 rate_ms, $9 spent_until,
-- $10 payload, $11 total, $12 position, $13 succeeded, $14 failed, $15 cancelled, $16 state, $17 active, $18 created_at,
-- $19 created_by, $20 finished_at, $21 note, $22 ticks.
insert into backfills (id, tenant, job, from_at, to_at, newest_first, rate_count, rate_ms, spent_until, payload, total, position,
                       succeeded, failed, cancelled, state, active, created_at, created_by, finished_at, note, ticks)
select n.id, n.tenant, n.job, n.from_at, n.to_at, n.newest_first, n.rate_count, n.rate_ms, n.spent_until, n.payload, n.total, n.position,
       n.succeeded, n.failed, n.cancelled, n.state, n.active, n.created_at, n.created_by, n.finished_at, n.note, n.ticks
  from unnest($1::uuid[], $2::integer[], $3::uuid[], $4::bigint[], $5::bigint[], $6::boolean[], $7::integer[], $8::bigint[],
              $9::bigint[], $10::text[], $11::integer[], $12::integer[], $13::integer[], $14::integer[], $15::integer[],
              $16::smallint[], $17::boolean[], $18::bigint[], $19::text[], $20::bigint[], $21::text[], $22::bytea[])
           as n (id, tenant, job, from_at, to_at, newest_first, rate_count, rate_ms, spent_until, payload, total, position,
                 succeeded, failed, cancelled, state, active, created_at, created_by, finished_at, note, ticks);
