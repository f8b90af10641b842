-- Inserts skip ranges of job ?1 and tenant ?2, recorded at ?3. Primary key: skip_ranges.
-- ?4 JSON array of [id, from_tick, to_tick, count, reason].
insert into skip_ranges (id, tenant, job, from_tick, to_tick, count, reason, recorded_at)
select unhex(s.value ->> 0), ?2, ?1, s.value ->> 1, s.value ->> 2, s.value ->> 3, s.value ->> 4, ?3
  from json_each(?4) as s;
