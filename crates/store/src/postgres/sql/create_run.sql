-- Inserts a run that somebody asked for; one that is there stays. Key: runs.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at,
                  skip_reason, payload)
values ($1, $2, $3, 2, $4, $4, $5, false, $6, 0, 0, 0, $7, $8, $9)
on conflict (id) do nothing;
