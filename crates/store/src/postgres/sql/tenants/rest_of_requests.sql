-- Removes up to $2 rows of tenant $1. Primary key: requests.
delete from requests
 where (tenant, key) in (select tenant, key from requests where tenant = $1 order by tenant, key limit $2);
