-- Inserts skip ranges of job $1 and tenant $2, recorded at $3. Primary key: skip_ranges.
-- Arrays: $4 id, $5 from_tick, $6 to_tick, $7 count, $8 reason.
insert into skip_ranges (id, tenant, job, from_tick, to_tick, count, reason, recorded_at)
select r.id, $2, $1, r.from_tick, r.to_tick, r.count, r.reason, $3
  from unnest($4::uuid[], $5::bigint[], $6::bigint[], $7::bigint[], $8::smallint[]) as r (id, from_tick, to_tick, count, reason);
