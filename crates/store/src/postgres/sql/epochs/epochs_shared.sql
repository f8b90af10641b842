-- Share-locks the jobs $1 against edits, in ascending order. Primary key: epochs.
-- Returns for each whether it is guarded (the claim must read its other runs) and its epoch.
-- First share-locks their gates, in order. If an edit waits at a gate, this waits until after the edit (see lock_epoch.sql).
-- PostgreSQL grants a share lock ahead of a waiting exclusive lock, so without the gates a stream of claims would block an edit
-- forever. A claim waits at a closed gate instead of skipping the job; otherwise edits could starve claims.
with gates as materialized (
    select pg_advisory_xact_lock_shared(8640, g.gate)
      from (select distinct hashtext(j::text) & 63 as gate from unnest($1::uuid[]) as j order by 1) g
)
select job, guarded, epoch from epochs
 where job = any($1) and (select count(*) from gates) > 0
 order by job for key share;
