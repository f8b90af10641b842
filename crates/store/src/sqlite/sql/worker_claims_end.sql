-- Removes the claims on the runs in ?1. Key: worker_claims.
delete from worker_claims where run in (select unhex(value) from json_each(?1));
