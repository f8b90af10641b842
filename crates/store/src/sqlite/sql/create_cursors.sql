-- Inserts the cursors of the new jobs [id, next_tick] of ?1. Key: cursors.
insert into cursors (job, tenant, partition, next_tick)
select unhex(n.value ->> 0), ?2, 0, n.value ->> 1 from json_each(?1) as n;
