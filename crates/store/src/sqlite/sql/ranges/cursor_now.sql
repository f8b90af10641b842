-- Reads the cursor of job ?1. Primary key: cursors. The clock was read when the transaction began, so `now` is null.
select null as now, next_tick from cursors where job = ?1;
