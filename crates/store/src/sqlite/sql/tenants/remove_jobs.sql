-- Removes the rows of job ?1. Primary key: jobs.
delete from jobs where id = ?1;
