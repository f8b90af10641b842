-- Writes the audit rows [subject, detail]: $3 did $4 at $2 for tenant $1.
insert into audit (tenant, at, actor, action, subject, detail)
select $1, $2, $3, $4, n.subject, n.detail from unnest($5::text[], $6::text[]) as n (subject, detail);
