-- The job whose backlog was worked at longest ago. The table has a row for each backlog that is being worked off, so few.
select job from backlog_work order by worked_at, job limit 1;
