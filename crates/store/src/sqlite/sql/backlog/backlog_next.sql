-- Finds the marked job whose backlog was worked on longest ago. Scans backlog_work, which has a row or two per marked job.
select job from backlog_work order by worked_at, job limit 1;
