-- Inserts the cursors of new jobs of tenant ?2, in partition 0. ?1 JSON array of [job, next_tick]. Primary key: cursors.
insert into cursors (job, tenant, partition, next_tick)
select unhex(n.value ->> 0), ?2, 0, n.value ->> 1 from json_each(?1) as n;
