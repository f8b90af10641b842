-- Whether a run with an id from $1 to before $2 waits, or a worker holds it. Keys: waiting, worker_claims.
select exists (select 1 from waiting where run >= $1 and run < $2)
    or exists (select 1 from worker_claims where run >= $1 and run < $2);
