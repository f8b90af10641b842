-- Removes the edges of job ?1. Primary key: job_parents. Index: job_parents_parent.
delete from job_parents where child = ?1 or parent = ?1;
