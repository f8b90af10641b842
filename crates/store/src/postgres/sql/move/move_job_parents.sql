-- Inserts moved job_parents: the edges between jobs. Arrays: $1 child, $2 parent, $3 tenant, $4 when_ended.
-- Primary key: job_parents.
insert into job_parents (child, parent, tenant, when_ended)
select n.child, n.parent, n.tenant, n.when_ended
  from unnest($1::uuid[], $2::uuid[], $3::integer[], $4::smallint[]) as n (child, parent, tenant, when_ended);
