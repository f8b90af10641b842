-- As record.sql and record_waiting.sql (same parameters), for a batch with ticks that are recorded already, which stay, or with
-- several ticks of one job. Each job is locked once, so that all of its ticks pass the epoch guard or none.
-- States: 0 waiting, 1 claimed, 5 skipped. Arrays: $4 id, $5 job, $6 epoch, $7 tick, $8 due_at, $9 state, $10 late, $11 reason,
-- $12 priority, $13 lead, $14 key. Lease: $1 incarnation, $2 node, $3 fence.
with lease as materialized (
    select until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended for share
), clock as materialized (
    select everytick_now() as now, until, open_from from lease
), locked as materialized (
    select p.job, p.epoch, e.tenant, e.partition, e.queue
      from (select distinct job, epoch from unnest($5::uuid[], $6::bigint[]) as p (job, epoch)) p
     cross join lateral (
            select e.tenant, e.partition, e.queue
              from epochs e
             where e.job = p.job and e.epoch = p.epoch
               for key share of e skip locked) e
     where exists (select 1 from clock k where k.until > k.now)
), sound as materialized (
    select t.id, t.job, t.tick, coalesce(t.due_at, t.tick) as due_at, t.state, coalesce(t.late, false) as late,
           case when t.state = 5 then t.reason end as reason, t.priority, t.lead, t.key, e.tenant, e.partition, e.queue, k.now
      from clock k
     cross join unnest($4::uuid[], $5::uuid[], $6::bigint[], $7::bigint[], $8::bigint[], $9::smallint[], $10::boolean[],
                       $11::smallint[], $12::smallint[], $13::bigint[], $14::text[])
                as t (id, job, epoch, tick, due_at, state, late, reason, priority, lead, key)
      join locked e on e.job = t.job and e.epoch = t.epoch
     where k.until > k.now and t.tick <= k.now
       and coalesce((select c.next_tick from cursors c where c.job = t.job) <= t.tick, false)
     order by t.job
), recorded as (
    insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence,
                      node, incarnation, started_at, finished_at, skip_reason)
    select s.id, s.tenant, s.job, 1, s.tick, s.due_at, s.state, s.late, false, (s.state = 1)::integer, 0,
           case when s.state = 1 then greatest(1, s.now * 1000) else 0 end,
           case when s.state = 1 then $2 end, case when s.state = 1 then $1 end, case when s.state = 1 then s.now end,
           case when s.state = 5 then s.now end, s.reason
      from sound s
    on conflict (id) do nothing
    returning id
), queued as (
    insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
    select s.id, s.job, s.tenant, s.partition, s.priority, s.due_at, s.late, false, 0, s.queue,
           case when s.queue is not null then case when s.late then s.now else s.due_at end - s.lead end, s.key
      from sound s
     where s.state = 0 and s.id = any (array(select id from recorded))
    on conflict (run) do nothing
)
select k.now, k.until, k.open_from, r.count, case when r.count < cardinality($4) then r.ids end as ids
  from clock k
 cross join (select count(*) as count, array_agg(id) as ids from recorded) r;
