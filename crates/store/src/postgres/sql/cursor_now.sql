-- The cursor of job $1, and the clock, now that its epoch is held. Key: cursors.
select everytick_now() as now, next_tick from cursors where job = $1;
