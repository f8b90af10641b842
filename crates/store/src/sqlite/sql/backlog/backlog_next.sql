-- Finds the marked job whose backlog was processed longest ago. Scans backlog_work, which has one or two rows per marked job.
select job from backlog_work order by worked_at, job limit 1;
