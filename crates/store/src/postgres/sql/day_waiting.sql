-- Whether a run with an id from $1 to before $2 waits, or a worker holds it, or a flow of that time has steps: the runs that
-- come next in a flow have ids of its root's time. Keys: waiting, worker_claims; index: flow_steps_flow.
select exists (select 1 from waiting where run >= $1 and run < $2)
    or exists (select 1 from worker_claims where run >= $1 and run < $2)
    or exists (select 1 from flow_steps where flow >= $1 and flow < $2);
