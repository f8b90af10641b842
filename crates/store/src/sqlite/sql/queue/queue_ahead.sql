-- Counts the runs of queue ?2 of tenant ?1 that are due at ?4 and are claimed before the waiting run ?3; at most ?5.
-- Primary key: waiting. Index: waiting_queue.
select count(*) from (
        select 1
          from (select w.rank, w.run from waiting w where w.run = ?3) as own
         cross join waiting w indexed by waiting_queue
            on w.tenant = ?1 and w.queue = ?2 and (w.rank, w.run) < (own.rank, own.run) and w.due_at <= ?4
         limit ?5);
