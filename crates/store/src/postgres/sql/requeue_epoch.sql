-- The runs of job $1, which is held, wait in queue $2; $3 says whether its other runs are to be looked at. Key: epochs.
update epochs set queue = $2, guarded = $3
 where job = $1 and (queue is distinct from $2::text or guarded <> $3);
