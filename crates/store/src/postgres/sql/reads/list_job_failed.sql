-- Lists up to $4 failed runs of job $8 of tenant $1 with ids from $2 to before $3, newest first.
-- Index: failures_job, backwards. Primary key: runs.
-- `flow` is the run's flow, or its own id if it is the root of one. `state < 2`: waiting or claimed.
-- $5 causes, $6 flow, $7 labels of the job as a JSON array of [key, value]; each null if unset.
select r.id, r.job, j.name as job_name, r.tenant, r.cause, r.scheduled_at, r.due_at, r.state, r.attempt, r.lost, r.fence, r.node, r.worker,
       r.started_at, r.finished_at, r.skip_reason, r.error, null::text as output, null::text as payload,
       coalesce(r.flow, case when r.state < 2 and exists (select 1 from job_parents p where p.parent = r.job)
                                or exists (select 1 from flow_steps s where s.run = r.id)
                                or exists (select 1 from flows f where f.id = r.id) then r.id end) as flow
  from failures f
  join runs r on r.id = f.run
  left join jobs j on j.id = r.job
 where f.tenant = $1 and f.job = $8 and f.run >= $2 and f.run < $3
   and ($5::smallint[] is null or r.cause = any($5))
   and ($6::uuid is null or r.flow = $6 or r.id = $6)
   and ($7::text is null or not exists (
         select 1 from json_array_elements($7::text::json) as w
          where not coalesce(jsonb_exists(j.labels, w ->> 0) and (w ->> 1 is null or j.labels ->> (w ->> 0) = w ->> 1), false)))
 order by f.run desc
 limit $4;
