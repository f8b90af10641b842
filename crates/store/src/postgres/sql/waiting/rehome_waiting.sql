-- Moves the waiting runs of job $1 to partition $2. Index: waiting_job.
update waiting set partition = $2 where job = $1 and partition <> $2;
