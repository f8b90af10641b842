-- Inserts moved skip ranges. Primary key: skip_ranges.
-- Arrays: $1 id, $2 tenant, $3 job, $4 from_tick, $5 to_tick, $6 count, $7 reason, $8 recorded_at.
insert into skip_ranges (id, tenant, job, from_tick, to_tick, count, reason, recorded_at)
select n.id, n.tenant, n.job, n.from_tick, n.to_tick, n.count, n.reason, n.recorded_at
  from unnest($1::uuid[], $2::integer[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::smallint[],
              $8::bigint[])
           as n (id, tenant, job, from_tick, to_tick, count, reason, recorded_at);
