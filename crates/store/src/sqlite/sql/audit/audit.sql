-- Inserts audit rows. ?1 tenant, ?2 time, ?3 actor, ?4 action; ?5 JSON array of [subject, detail].
insert into audit (tenant, at, actor, action, subject, detail)
select ?1, ?2, ?3, ?4, n.value ->> 0, n.value ->> 1 from json_each(?5) as n;
