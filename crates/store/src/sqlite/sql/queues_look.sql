-- Of each of the queues [tenant, name] of ?1: whether something in it is due at ?2, and when the next one is that is not. Index: waiting_queue_due.
select q.value ->> 0 as tenant, q.value ->> 1 as name,
       exists (select 1 from waiting w indexed by waiting_queue_due
                where w.tenant = q.value ->> 0 and w.queue = q.value ->> 1 and w.due_at <= ?2) as due,
       (select min(w.due_at) from waiting w indexed by waiting_queue_due
         where w.tenant = q.value ->> 0 and w.queue = q.value ->> 1 and w.due_at > ?2) as next_due
  from json_each(?1) as q;
