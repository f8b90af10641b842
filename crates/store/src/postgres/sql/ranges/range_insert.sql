-- Inserts skip ranges of job $6 and tenant $7, recorded at $8. Primary key: skip_ranges.
-- Arrays: $1 id, $2 from_tick, $3 to_tick, $4 count, $5 reason.
insert into skip_ranges (id, tenant, job, from_tick, to_tick, count, reason, recorded_at)
select r.id, $7, $6, r.from_tick, r.to_tick, r.count, r.reason, $8
  from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[]) as r (id, from_tick, to_tick, count, reason);
