-- Grants both roles what they need besides the tables with rows of tenants: the schema, sequences, functions, and the tables of
-- the installation. Executed by the owner; changes nothing that is right.
-- `counters`, `partitions`, `keys`: the role `everytick_api` locks rows; a lock needs the privilege to update some column.
do $$
declare
    of_installation text;
    r text;
begin
    foreach r in array array['everytick_api', 'everytick_engine'] loop
        execute format('grant usage on schema %I to %I', current_schema(), r);
        execute format('grant usage on sequence changes_seq, waiting_lots to %I', r);
        execute format('revoke all on schema_steps from %I', r);
        execute format('grant select, update (works_from) on schema_steps to %I', r);
    end loop;
    for of_installation in
        select c.relname from pg_class c
         where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace and not c.relforcerowsecurity
           and c.relname <> 'schema_steps'
    loop
        execute format('grant select, insert, update, delete on %I to everytick_engine', of_installation);
    end loop;
    grant select on leases to everytick_api;
    grant select, update (home_region) on partitions to everytick_api;
    grant select, update (value) on counters to everytick_api;
    grant select, insert, update (id) on keys to everytick_api;
    grant execute on function everytick_make_day(date), everytick_detach_day(date), everytick_drop_day(date),
                              everytick_prune_audit(bigint, bigint) to everytick_engine;
end $$;
