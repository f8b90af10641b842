-- Locks the claimed runs (state 1) of job $1 with ids from $2 on, in ascending order. Index: runs_history.
-- $2 is the lowest open_from of all leases; lock_claimed_listed.sql locks the older claims.
select id from runs where job = $1 and id >= $2 and state = 1 order by id for update;
