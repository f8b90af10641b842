-- Takes the runs of job $1 from among the waiting. Index: waiting_job.
delete from waiting where job = $1 returning run;
