-- Removes the claims on the runs $1. Key: worker_claims.
delete from worker_claims where run = any($1);
