-- Locks the epochs of the jobs $1 in ascending order: no tick of them is recorded until this transaction ends.
-- Primary key: epochs. First locks their gates, in order, as lock_epoch.sql does.
with gates as materialized (
    select pg_advisory_xact_lock(8640, g.gate)
      from (select distinct hashtext(j::text) & 63 as gate from unnest($1::uuid[]) as j order by 1) g
)
select e.job from epochs e
 where e.job = any($1) and (select count(*) from gates) > 0
 order by e.job for update;
