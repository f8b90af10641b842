-- Removes the runs of job ?1 from waiting. Index: waiting_job.
delete from waiting where job = ?1;
