-- Holds the jobs $1 against edits, in order; tells of which the other runs are to be looked at. Waits at their gates first, in order,
-- behind edits that wait there (see epoch_held.sql): PostgreSQL lets one who shares a row past one who waits to have it alone, so
-- that claims in a row would keep an edit waiting for ever, and a claim that passed by closed gates would starve behind edits. Key: epochs.
with gates as materialized (
    select pg_advisory_xact_lock_shared(8640, g.gate)
      from (select distinct hashtext(j::text) & 63 as gate from unnest($1::uuid[]) as j order by 1) g
)
select job, guarded, epoch from epochs
 where job = any($1) and (select count(*) from gates) > 0
 order by job for key share;
