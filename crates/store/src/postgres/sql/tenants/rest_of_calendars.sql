-- Removes up to $2 rows of tenant $1. Primary key: calendars.
delete from calendars
 where (tenant, name) in (select tenant, name from calendars where tenant = $1 order by tenant, name limit $2);
