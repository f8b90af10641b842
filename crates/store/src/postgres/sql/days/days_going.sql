-- Lists day tables that are being detached, or are detached and not dropped, and whether each has row-level security if `runs` has it.
-- Scans pg_class, which has a few relations per day.
select c.relname::text as name, i.inhrelid is not null as attached, c.relforcerowsecurity = p.relforcerowsecurity as usable
  from pg_class p
  join pg_class c on c.relnamespace = p.relnamespace
  left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = p.oid
 where p.oid = 'runs'::regclass and c.relkind = 'r'
   and c.relname ~ '^runs_[0-9]{8}$' and (i.inhrelid is null or i.inhdetachpending);
