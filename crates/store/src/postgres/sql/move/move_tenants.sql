-- Inserts moved tenants; the default tenant exists already and is updated. Arrays: $1 id, $2 name, $3 jobs. Primary key: tenants.
insert into tenants (id, name, jobs)
select n.id, n.name, n.jobs
  from unnest($1::integer[], $2::text[], $3::bigint[])
           as n (id, name, jobs)
on conflict (id) do update set name = excluded.name, jobs = excluded.jobs;
