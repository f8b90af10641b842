-- Lists the attempts of run $1 of tenant $2 after which the run continued. Primary key: attempts.
select attempt, fence, node, worker, started_at, finished_at, outcome, error, output
  from attempts where run = $1 and tenant = $2 order by attempt;
