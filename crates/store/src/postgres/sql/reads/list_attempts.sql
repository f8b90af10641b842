-- Lists the attempts of run $1 that ended without ending the run. Primary key: attempts.
select attempt, fence, node, worker, started_at, finished_at, outcome, error, output
  from attempts where run = $1 order by attempt;
