-- Lists the tables with rows of tenants that lack row-level security or have other policies than `api` and `engine`: `runs` first.
-- Scans pg_class, which has a few relations per day.
select c.oid::regclass::text as name
  from pg_class c
 where c.relkind in ('r', 'p') and c.relnamespace = (select relnamespace from pg_class where oid = 'runs'::regclass)
   and (c.relname = 'tenants' or exists (
            select 1 from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant' and a.attnum > 0 and not a.attisdropped))
   and not (c.relrowsecurity and c.relforcerowsecurity
            and (select coalesce(array_agg(p.polname::text order by p.polname), '{}') = '{api,engine}' from pg_policy p
                  where p.polrelid = c.oid))
 order by c.relname <> 'runs', c.relname;
