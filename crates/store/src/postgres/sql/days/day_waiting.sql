-- Whether a run with an id from $1 to before $2 waits or is claimed by a worker, or a flow with such an id has steps.
-- Primary keys: waiting, worker_claims. Index: flow_steps_flow.
-- Steps count because the next runs of a flow get ids with the time of its root.
select exists (select 1 from waiting where run >= $1 and run < $2)
    or exists (select 1 from worker_claims where run >= $1 and run < $2)
    or exists (select 1 from flow_steps where flow >= $1 and flow < $2);
