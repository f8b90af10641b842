-- Lists the day tables by name, and whether each may be addressed by its name: it is not being detached, and has row-level security
-- if `runs` has it. Scans the children of runs, one per day.
select c.relname::text as name, not i.inhdetachpending and c.relforcerowsecurity = p.relforcerowsecurity as usable
  from pg_class p
  join pg_inherits i on i.inhparent = p.oid
  join pg_class c on c.oid = i.inhrelid
 where p.oid = 'runs'::regclass
 order by c.relname;
