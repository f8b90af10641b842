-- Removes the rows of the runs ?1. Primary key: worker_claims.
delete from worker_claims where run in (select unhex(value) from json_each(?1));
