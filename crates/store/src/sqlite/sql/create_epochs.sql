-- Inserts the epochs of the new jobs [id, seq, queue] of ?1. Key: epochs.
insert into epochs (job, tenant, partition, epoch, seq, queue)
select unhex(n.value ->> 0), ?2, 0, 1, n.value ->> 1, n.value ->> 2 from json_each(?1) as n;
