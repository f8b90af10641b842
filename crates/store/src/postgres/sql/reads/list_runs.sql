-- Lists up to $5 runs of tenant $1 with ids from $2 to before $3, newest first. Primary key: runs, backwards.
-- $4 states; null: any. `flow` is the run's flow, or its own id if it is the root of one. `state < 2`: waiting or claimed.
-- $6 causes, $7 flow, $8 labels of the job as a JSON array of [key, value]; each null if unset.
select r.id, r.job, j.name as job_name, r.tenant, r.cause, r.scheduled_at, r.due_at, r.state, r.attempt, r.lost, r.fence, r.node, r.worker,
       r.started_at, r.finished_at, r.skip_reason, r.error, null::text as output, null::text as payload,
       coalesce(r.flow, case when r.state < 2 and exists (select 1 from job_parents p where p.parent = r.job)
                                or exists (select 1 from flow_steps s where s.run = r.id)
                                or exists (select 1 from flows f where f.id = r.id) then r.id end) as flow
  from runs r
  left join jobs j on j.id = r.job
 where r.tenant = $1 and r.id >= $2 and r.id < $3
   and ($4::smallint[] is null or r.state = any($4))
   and ($6::smallint[] is null or r.cause = any($6))
   and ($7::uuid is null or r.flow = $7 or r.id = $7)
   and ($8::text is null or not exists (
         select 1 from json_array_elements($8::text::json) as w
          where not coalesce(jsonb_exists(j.labels, w ->> 0) and (w ->> 1 is null or j.labels ->> (w ->> 0) = w ->> 1), false)))
 order by r.id desc
 limit $5;
