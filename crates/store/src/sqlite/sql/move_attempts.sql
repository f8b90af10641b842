-- Up to ?1 rows behind the key (?2, ?3). Key: attempts.
select run, attempt, fence, node, started_at, finished_at, outcome, error, output, worker
  from attempts
 where (run, attempt) > (?2, ?3)
 order by run, attempt
 limit ?1;
