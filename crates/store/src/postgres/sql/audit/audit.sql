-- Inserts audit rows. $1 tenant, $2 time, $3 actor, $4 action; arrays: $5 subject, $6 detail.
insert into audit (tenant, at, actor, action, subject, detail)
select $1, $2, $3, $4, n.subject, n.detail from unnest($5::text[], $6::text[]) as n (subject, detail);
