-- Brings tenants over; the first one is there already. Key: tenants.
insert into tenants (id, name, jobs)
select n.id, n.name, n.jobs
  from unnest($1::integer[], $2::text[], $3::bigint[])
           as n (id, name, jobs)
on conflict (id) do update set name = excluded.name, jobs = excluded.jobs;
