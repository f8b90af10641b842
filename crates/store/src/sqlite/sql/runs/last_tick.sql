-- Reads the last recorded tick (cause 1) of job ?1 with an id from ?2 on. Index: runs_history, backwards.
select scheduled_at from runs indexed by runs_history where job = ?1 and id >= ?2 and cause = 1 order by id desc limit 1;
