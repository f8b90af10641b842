-- Removes up to $2 rows of tenant $1. Primary key: calendar_versions.
delete from calendar_versions
 where (tenant, name, version) in (select tenant, name, version from calendar_versions where tenant = $1 order by tenant, name, version limit $2);
