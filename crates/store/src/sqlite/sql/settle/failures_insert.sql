-- Adds failed runs to failures. ?1 JSON array of [run, tenant, job, error_hash]. Primary key: failures.
insert into failures (run, tenant, job, error_hash)
select unhex(f.value ->> 0), f.value ->> 1, unhex(f.value ->> 2), f.value ->> 3
  from json_each(?1) as f
 where true
    on conflict do nothing;
