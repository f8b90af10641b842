-- Writes the audit rows [subject, detail] of ?5: ?3 did ?4 at ?2 for tenant ?1.
insert into audit (tenant, at, actor, action, subject, detail)
select ?1, ?2, ?3, ?4, n.value ->> 0, n.value ->> 1 from json_each(?5) as n;
