-- Records ticks, in one statement: holds the lease and sees that it lives and carries the fence $3, holds the epochs of the
-- jobs that still have the one they were planned with (passing over those that an edit holds; once a job, so that of its ticks all are recorded or none), and inserts the ticks of
-- exactly those jobs that are not after the clock, read after the lease was held, and not below the cursor. Jobs come in
-- order; no lock but the lease's is waited for. Says how many were inserted, and which when not all. Keys: leases, epochs,
-- cursors. `coalesce` keeps the guard from becoming the key by which cursors are sought, which takes seconds for a burst.
with lease as materialized (
    select until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended for share
), clock as materialized (
    select everytick_now() as now, until, open_from from lease
), held as materialized (
    select e.job, e.epoch, e.tenant, e.partition, e.queue
      from (select distinct job, epoch from unnest($5::uuid[], $6::bigint[]) as p (job, epoch)) p
      join epochs e on e.job = p.job and e.epoch = p.epoch
     where exists (select 1 from clock k where k.until > k.now)
     order by e.job
       for key share of e skip locked
), sound as materialized (
    select t.id, t.job, t.tick, t.due_at, t.state, t.late, t.reason, t.priority, t.lead, t.key, e.tenant, e.partition, e.queue, k.now
      from clock k
     cross join unnest($4::uuid[], $5::uuid[], $6::bigint[], $7::bigint[], $8::bigint[], $9::smallint[], $10::boolean[],
                       $11::smallint[], $12::smallint[], $13::bigint[], $14::text[])
                as t (id, job, epoch, tick, due_at, state, late, reason, priority, lead, key)
      join held e on e.job = t.job and e.epoch = t.epoch
      join cursors c on c.job = t.job and coalesce(c.next_tick <= t.tick, false)
     where k.until > k.now and t.tick <= k.now
     order by t.job
), recorded as (
    insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence,
                      node, incarnation, started_at, finished_at, skip_reason)
    select s.id, s.tenant, s.job, 1, s.tick, s.due_at, s.state, s.late, false, (s.state = 1)::integer, 0,
           case when s.state = 1 then greatest(1, s.now * 1000) else 0 end,
           case when s.state = 1 then $2 end, case when s.state = 1 then $1 end, case when s.state = 1 then s.now end,
           case when s.state = 5 then s.now end, s.reason
      from sound s
    returning id
), queued as (
    insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
    select s.id, s.job, s.tenant, s.partition, s.priority, s.due_at, s.late, false, 0, s.queue,
           case when s.queue is not null then case when s.late then s.now else s.due_at end - s.lead end, s.key
      from sound s
     where s.state = 0
)
select k.now, k.until, k.open_from, r.count, case when r.count < cardinality($4) then r.ids end as ids
  from clock k
 cross join (select count(*) as count, array_agg(id) as ids from recorded) r;
