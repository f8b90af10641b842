-- Reads the tenant and the cursor of job ?1 if its epoch is ?2. Primary keys: epochs, cursors.
select e.tenant, c.next_tick
  from epochs e
  join cursors c on c.job = e.job
 where e.job = ?1 and e.epoch = ?2;
