-- Reads the recorded ticks (cause 1) of job ?1 with ids from ?2 to before ?3. Index: runs_history.
select scheduled_at from runs indexed by runs_history where job = ?1 and id >= ?2 and id < ?3 and cause = 1 order by id;
