-- Removes all parents of job ?1. Primary key: job_parents.
delete from job_parents where child = ?1;
