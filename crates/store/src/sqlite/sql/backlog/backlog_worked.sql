-- Adds ?3 runs to the progress of action ?2 on the backlog of job ?1, at time ?4. Primary key: backlog_work.
update backlog_work set done = done + ?3, worked_at = ?4 where job = ?1 and action = ?2;
