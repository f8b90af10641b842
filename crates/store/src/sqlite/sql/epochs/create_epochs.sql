-- Inserts the epochs of new jobs of tenant ?2, in partition 0. ?1 JSON array of [job, change number, queue]. Primary key: epochs.
insert into epochs (job, tenant, partition, epoch, seq, queue)
select unhex(n.value ->> 0), ?2, 0, 1, n.value ->> 1, n.value ->> 2 from json_each(?1) as n;
