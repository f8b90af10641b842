-- Writes the new definition of job $1. Primary key: jobs.
-- $2 enabled, $3 target, $4 labels, $5 search, then the values of the edited columns (job_row.rs).
update jobs set enabled = $2, target = $3, labels = $4::jsonb, search = $5, {{job_edited}}
 where id = $1;
