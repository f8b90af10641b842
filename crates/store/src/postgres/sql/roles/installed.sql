-- Whether row-level security is installed. Scans no table.
select relforcerowsecurity from pg_class where oid = 'runs'::regclass;
