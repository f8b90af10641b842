-- Lists up to $1 incarnations that have rows in open_claims and no lease: a node of an earlier release, which does not read
-- open_claims, removed the lease. Index: open_claims_incarnation, read whole; it has few rows.
select distinct c.incarnation
  from open_claims c
 where not exists (select 1 from leases l where l.incarnation = c.incarnation)
 limit $1;
