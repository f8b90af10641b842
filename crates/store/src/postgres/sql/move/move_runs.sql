-- Inserts moved runs into their day tables. Primary key: runs.
-- Arrays: $1 id, $2 tenant, $3 cause, $4 state, $5 job, $6 scheduled_at, $7 due_at, $8 fence, $9 started_at, $10 finished_at,
-- $11 attempt, $12 lost, $13 skip_reason, $14 late, $15 force, $16 incarnation, $17 node, $18 error, $19 output, $20 payload,
-- $21 worker, $22 flow.
insert into runs (id, tenant, cause, state, job, scheduled_at, due_at, fence, started_at, finished_at, attempt, lost, skip_reason,
    late, force, incarnation, node, error, output, payload, worker, flow)
select n.id, n.tenant, n.cause, n.state, n.job, n.scheduled_at, n.due_at, n.fence, n.started_at, n.finished_at,
       n.attempt, n.lost, n.skip_reason, n.late, n.force, n.incarnation, n.node, n.error, n.output, n.payload, n.worker, n.flow
  from unnest($1::uuid[], $2::integer[], $3::smallint[], $4::smallint[], $5::uuid[], $6::bigint[], $7::bigint[],
              $8::bigint[], $9::bigint[], $10::bigint[], $11::integer[], $12::integer[], $13::smallint[],
              $14::boolean[], $15::boolean[], $16::uuid[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[],
              $22::uuid[])
           as n (id, tenant, cause, state, job, scheduled_at, due_at, fence, started_at, finished_at, attempt, lost,
                 skip_reason, late, force, incarnation, node, error, output, payload, worker, flow);
