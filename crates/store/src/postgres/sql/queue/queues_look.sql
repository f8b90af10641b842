-- Reads for each queue whether a run is due at $3, and when the next later one is due. Arrays: $1 tenant, $2 name.
-- Index: waiting_queue_due.
select q.tenant, q.name,
       exists (select 1 from waiting w where w.tenant = q.tenant and w.queue = q.name and w.due_at <= $3) as due,
       (select w.due_at from waiting w where w.tenant = q.tenant and w.queue = q.name and w.due_at > $3
         order by w.due_at limit 1) as next_due
  from unnest($1::integer[], $2::text[]) as q (tenant, name);
