-- Reads up to ?1 rows of attempts after (?2 run, ?3 attempt), for a move. Primary key: attempts.
select run, attempt, fence, node, started_at, finished_at, outcome, error, output, worker
  from attempts
 where (run, attempt) > (?2, ?3)
 order by run, attempt
 limit ?1;
