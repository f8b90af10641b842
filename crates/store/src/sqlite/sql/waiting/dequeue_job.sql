-- Removes the runs of job ?1 from waiting, and returns them. Index: waiting_job.
delete from waiting where job = ?1 returning run;
