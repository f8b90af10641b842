-- Writes the new definition of job ?1. Primary key: jobs. From ?2 on, the values of the edited columns (job_row.rs).
update jobs set {{job_edited}}
 where id = ?1;
