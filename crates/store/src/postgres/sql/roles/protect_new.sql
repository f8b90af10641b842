-- Protects the tables that this transaction has just created, in a database with row-level security. Executed by the owner.
do $$
declare
    unprotected regclass;
begin
    for unprotected in
        select c.oid::regclass
          from pg_class c
         where c.relkind in ('r', 'p') and c.relnamespace = current_schema()::regnamespace and not c.relforcerowsecurity
           and (c.relname = 'tenants' or exists (
                    select 1 from pg_attribute a
                     where a.attrelid = c.oid and a.attname = 'tenant' and a.attnum > 0 and not a.attisdropped))
    loop
        perform everytick_protect_table(unprotected);
    end loop;
end $$;
