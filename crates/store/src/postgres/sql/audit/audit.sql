-- Inserts audit rows. $1 tenant, $2 time, $3 actor, $4 action; arrays: $5 subject, $6 detail; $7 kind of the actor, $8 token,
-- $9 address, $10 request, $11 result.
insert into audit (tenant, at, actor, action, subject, detail, actor_kind, token_id, ip, request_id, result)
select $1, $2, $3, $4, n.subject, n.detail, $7, $8, $9, $10, $11 from unnest($5::text[], $6::text[]) as n (subject, detail);
