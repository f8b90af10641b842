-- Brings attempts over. Key: attempts.
insert into attempts (run, attempt, fence, node, started_at, finished_at, outcome, error, output, worker)
select n.run, n.attempt, n.fence, n.node, n.started_at, n.finished_at, n.outcome, n.error, n.output, n.worker
  from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[],
              $9::text[], $10::text[])
           as n (run, attempt, fence, node, started_at, finished_at, outcome, error, output, worker);
