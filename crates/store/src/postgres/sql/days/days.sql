-- Lists the day tables by name, and whether each is being detached. Scans the children of runs, one per day.
select c.relname::text as name, i.inhdetachpending as going
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
 where i.inhparent = 'runs'::regclass
 order by c.relname;
