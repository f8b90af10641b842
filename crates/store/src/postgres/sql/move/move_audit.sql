-- Inserts moved audit rows under their old ids. Primary key: audit.
-- Arrays: $1 id, $2 tenant, $3 at, $4 actor, $5 action, $6 subject, $7 detail.
insert into audit (id, tenant, at, actor, action, subject, detail)
overriding system value
select n.id, n.tenant, n.at, n.actor, n.action, n.subject, n.detail
  from unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[])
           as n (id, tenant, at, actor, action, subject, detail);
