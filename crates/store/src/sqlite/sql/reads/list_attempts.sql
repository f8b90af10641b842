-- Lists the attempts of run ?1 after which the run continued. Primary key: attempts.
select attempt, fence, node, worker, started_at, finished_at, outcome, error, output from attempts where run = ?1 order by attempt;
