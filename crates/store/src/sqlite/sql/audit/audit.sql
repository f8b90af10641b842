-- Inserts audit rows. ?1 tenant, ?2 time, ?3 actor, ?4 action; ?5 JSON array of [subject, detail]; ?6 kind of the actor, ?7 token,
-- ?8 address, ?9 request, ?10 result.
insert into audit (tenant, at, actor, action, subject, detail, actor_kind, token_id, ip, request_id, result)
select ?1, ?2, ?3, ?4, n.value ->> 0, n.value ->> 1, ?6, ?7, ?8, ?9, ?10 from json_each(?5) as n;
