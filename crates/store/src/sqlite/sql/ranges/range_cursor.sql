-- Reads the tenant of job ?1 if its epoch is ?2 and its cursor is ?3. Primary keys: epochs, cursors.
select e.tenant
  from epochs e
  join cursors c on c.job = e.job
 where e.job = ?1 and e.epoch = ?2 and c.next_tick = ?3;
