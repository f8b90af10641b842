-- Reads of each queue whether a run is due at ?2, and when the next later one is due. ?1 JSON array of [tenant, name].
-- Index: waiting_queue_due.
select q.value ->> 0 as tenant, q.value ->> 1 as name,
       exists (select 1 from waiting w indexed by waiting_queue_due
                where w.tenant = q.value ->> 0 and w.queue = q.value ->> 1 and w.due_at <= ?2) as due,
       (select min(w.due_at) from waiting w indexed by waiting_queue_due
         where w.tenant = q.value ->> 0 and w.queue = q.value ->> 1 and w.due_at > ?2) as next_due
  from json_each(?1) as q;
