-- Lists day tables that are being detached, or are detached and not dropped. Scans pg_class, which has a few relations per day.
select c.relname::text as name, i.inhrelid is not null as attached
  from pg_class c
  left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = 'runs'::regclass
 where c.relkind = 'r' and c.relnamespace = (select relnamespace from pg_class where oid = 'runs'::regclass)
   and c.relname ~ '^runs_[0-9]{8}$' and (i.inhrelid is null or i.inhdetachpending);
