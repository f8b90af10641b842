-- Up to $1 incarnations that open_claims names and that have no lease: a node of an earlier release, which does not read
-- open_claims, has removed it. Index: open_claims_incarnation, whole; the rows are few.
select distinct c.incarnation
  from open_claims c
 where not exists (select 1 from leases l where l.incarnation = c.incarnation)
 limit $1;
