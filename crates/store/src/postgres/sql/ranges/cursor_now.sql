-- Reads the cursor of job $1 and the clock. Primary key: cursors. The caller has locked the job's epoch in an earlier statement.
select everytick_now() as now, next_tick from cursors where job = $1;
