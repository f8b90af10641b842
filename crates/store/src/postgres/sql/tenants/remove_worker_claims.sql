-- Removes the rows of the runs $1. Primary key: worker_claims.
delete from worker_claims where run = any($1);
