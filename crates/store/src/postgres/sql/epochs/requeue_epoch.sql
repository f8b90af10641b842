-- Sets the queue of job $1 to $2, and guarded to $3: whether a claim must read the job's other runs. Primary key: epochs.
-- The caller has locked the row.
update epochs set queue = $2, guarded = $3
 where job = $1 and (queue is distinct from $2::text or guarded <> $3);
