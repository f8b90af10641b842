-- Job ?1 follows nobody any more. Key: job_parents.
delete from job_parents where child = ?1;
