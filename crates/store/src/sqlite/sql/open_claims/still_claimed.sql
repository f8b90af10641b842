-- Lists those of the runs ?2 that incarnation ?1 has claimed (state 1). Primary key: runs.
select id, fence from runs where id in (select unhex(value) from json_each(?2)) and state = 1 and incarnation = ?1;
