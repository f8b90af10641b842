-- Whether every node that lives reads short definitions, and whether no other starts any more. Scans leases, which are few.
select not exists (select 1 from leases where not ended and not reads_short),
       coalesce((select works_from >= step from schema_steps where name = 'short'), false);
