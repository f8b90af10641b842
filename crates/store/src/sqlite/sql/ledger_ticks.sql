-- The ticks of job ?1 that have rows between the ids ?2 and ?3. Index: runs_history.
select scheduled_at from runs indexed by runs_history where job = ?1 and id >= ?2 and id < ?3 and cause = 1 order by id;
