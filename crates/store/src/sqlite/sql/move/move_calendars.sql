-- Reads up to ?1 rows of calendars after (?2 tenant, ?3 name), for a move. Primary key: calendars.
select tenant, name, version, created_at, created_by, updated_at
  from calendars
 where (tenant, name) > (?2, ?3)
 order by tenant, name
 limit ?1;
