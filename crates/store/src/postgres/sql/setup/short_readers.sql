-- Whether every living node reads compact definitions, and whether releases that do not are already refused. Scans leases and
-- schema_steps, small tables.
select not exists (select 1 from leases where not ended and not reads_short),
       coalesce((select works_from >= step from schema_steps where name = 'short'), false);
