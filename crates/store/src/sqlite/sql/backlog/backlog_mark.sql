-- Marks all waiting runs of job ?1 for action ?3 (1 cancel, 2 move). Primary keys: backlog_work, counters.
-- ?2 tenant, ?4 time, ?5 actor. Runs that begin to wait after next_lot.sql get a higher lot and are not marked.
insert into backlog_work (job, action, tenant, up_to, created_at, worked_at, actor)
values (?1, ?3, ?2, (select value from counters where name = 'lot'), ?4, ?4, ?5)
on conflict (job, action) do update set up_to = excluded.up_to, actor = excluded.actor;
