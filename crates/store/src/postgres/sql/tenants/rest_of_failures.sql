-- Removes up to $2 rows of tenant $1. Primary key: failures.
delete from failures
 where (tenant, run) in (select tenant, run from failures where tenant = $1 order by tenant, run limit $2);
