-- Inserts a requested run (cause 2); a run that exists stays. Primary key: runs.
-- ?1 id, ?2 tenant, ?3 job, ?4 scheduled_at and due_at, ?5 state (0 waiting, 5 skipped), ?6 force, ?7 finished_at,
-- ?8 skip_reason, ?9 payload.
insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at,
                  skip_reason, payload)
values (?1, ?2, ?3, 2, ?4, ?4, ?5, 0, ?6, 0, 0, 0, ?7, ?8, ?9)
on conflict (id) do nothing;
