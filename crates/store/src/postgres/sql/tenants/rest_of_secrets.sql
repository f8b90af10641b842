-- Removes up to $2 rows of tenant $1. Primary key: secrets.
delete from secrets
 where (tenant, name) in (select tenant, name from secrets where tenant = $1 order by tenant, name limit $2);
