-- As search_end.sql (?1 lowest id, ?2 highest id, excluded, ?3 offset), among the runs of job ?4. Index: runs_history, backwards.
select id from runs indexed by runs_history where job = ?4 and id >= ?1 and id < ?2 order by id desc limit 1 offset ?3;
