-- Step 12: the tenant of attempts and of listed runs of backfills, and the functions that a role needs which owns no table.
-- Row-level security itself is installed by `everytick migrate --app-role`; see postgres/sql/roles.

-- Rows that exist belong to tenant 1 unless there are others. A default that is dropped again fills them without a rewrite.
alter table attempts add column tenant integer not null default 1;
alter table attempts alter column tenant drop default;
update attempts a set tenant = coalesce(
    (select r.tenant from runs r where r.id = a.run), (select l.tenant from last_runs l where l.id = a.run), a.tenant)
 where exists (select 1 from tenants where id <> 1);

alter table backfill_runs add column tenant integer not null default 1;
alter table backfill_runs alter column tenant drop default;
update backfill_runs l set tenant = coalesce((select b.tenant from backfills b where b.id = l.backfill), l.tenant)
 where exists (select 1 from tenants where id <> 1);

-- For nodes of earlier releases, which insert without a tenant.
create function everytick_fill_tenant() returns trigger language plpgsql as $$
begin
    if tg_table_name = 'attempts' then
        new.tenant := coalesce((select tenant from runs where id = new.run), (select tenant from last_runs where id = new.run), 1);
    else
        new.tenant := coalesce((select tenant from backfills where id = new.backfill), 1);
    end if;
    return new;
end $$;
create trigger attempts_tenant before insert on attempts
   for each row when (new.tenant is null) execute function everytick_fill_tenant();
create trigger backfill_runs_tenant before insert on backfill_runs
   for each row when (new.tenant is null) execute function everytick_fill_tenant();

-- Lets both roles use a table: with policies if it has a tenant, and with the privileges that they need. The policy `engine`
-- includes the owner, so that nodes which connect as the owner work as before. Changes only what is missing.
create function everytick_protect_table(target regclass) returns void language plpgsql as $$
declare
    table_name text := (select relname from pg_class where oid = target);
    owner text := (select pg_get_userbyid(relowner) from pg_class where oid = target);
    key text := case when table_name = 'tenants' then 'id' else 'tenant' end;
    -- `coalesce` keeps the comparison from choosing an index: each statement has its own plan, whatever role executes it.
    own text := format('(coalesce(%I = (select nullif(current_setting(''everytick.tenant'', true), '''')::int), false))', key);
    api text := case table_name when 'audit' then 'select, insert' when 'tokens' then 'select'
                                when 'tenants' then 'select, insert, update' else 'select, insert, update, delete' end;
    engine text := case table_name when 'audit' then 'select, insert' else 'select, insert, update, delete' end;
begin
    if not (select relrowsecurity and relforcerowsecurity from pg_class where oid = target) then
        execute format('alter table %s enable row level security, force row level security', target);
    end if;
    if not exists (select 1 from pg_policy where polrelid = target and polname = 'api') then
        execute format('create policy api on %s to everytick_api using %s with check %s', target, own, own);
    end if;
    if not exists (select 1 from pg_policy where polrelid = target and polname = 'engine') then
        execute format('create policy engine on %s to everytick_engine, %I using (true) with check (true)', target, owner);
    end if;
    execute format('revoke all on %s from public, everytick_api, everytick_engine', target);
    execute format('grant %s on %s to everytick_api', api, target);
    execute format('grant %s on %s to everytick_engine', engine, target);
end $$;

-- Creates the table of a day of runs and attaches it, or attaches it again. Attaching does not block inserts. Returns whether it
-- created the table. If row-level security is installed, the table gets its own policies: statements address it by its name, and
-- the policies of `runs` do not apply then. A lock that is not free within 1 s fails the call; the caller tries again later.
create function everytick_make_day(day date) returns boolean
language plpgsql security definer set lock_timeout = '1s' as $$
declare
    table_name text := 'runs_' || to_char(day, 'YYYYMMDD');
    -- Run ids begin with the milliseconds since 1970.
    low text := lpad(to_hex((day - date '1970-01-01') * 86400000::bigint), 12, '0') || repeat('0', 20);
    high text := lpad(to_hex((day + 1 - date '1970-01-01') * 86400000::bigint), 12, '0') || repeat('0', 20);
    made boolean := to_regclass(table_name) is null;
begin
    if made then
        execute format(
            'create table %I (like runs including defaults including constraints including indexes including storage)
               with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05,
                     autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0,
                     toast.autovacuum_vacuum_scale_factor = 0.1)', table_name);
    end if;
    if (select relforcerowsecurity from pg_class where oid = 'runs'::regclass) then
        perform everytick_protect_table(table_name::regclass);
    end if;
    if not exists (select 1 from pg_inherits where inhrelid = table_name::regclass) then
        execute format('alter table runs attach partition %I for values from (%L) to (%L)', table_name, low::uuid, high::uuid);
    end if;
    return made;
end $$;

-- Detaches a day of runs, or ends a detach that was interrupted. Other statements on `runs` wait meanwhile, so this gives up after
-- 250 ms; the caller tries again later. The owner detaches with `concurrently` instead, which no function can do.
create function everytick_detach_day(day date) returns void
language plpgsql security definer set lock_timeout = '250ms' as $$
declare
    table_name text := 'runs_' || to_char(day, 'YYYYMMDD');
    pending boolean := (select inhdetachpending from pg_inherits where inhrelid = to_regclass(table_name));
begin
    if pending is not null then
        execute format('alter table runs detach partition %I %s', table_name, case when pending then 'finalize' else '' end);
    end if;
end $$;

-- Drops the detached table of a day of runs. Returns whether there was one.
create function everytick_drop_day(day date) returns boolean
language plpgsql security definer set lock_timeout = '1s' as $$
declare
    table_name text := 'runs_' || to_char(day, 'YYYYMMDD');
begin
    if to_regclass(table_name) is null then
        return false;
    end if;
    if exists (select 1 from pg_inherits where inhrelid = table_name::regclass) then
        raise exception 'the table % is attached: detach it first, so that no transaction writes into it', table_name
              using errcode = 'object_not_in_prerequisite_state';
    end if;
    execute format('drop table %I', table_name);
    return true;
end $$;

-- Removes the audit rows before an instant (milliseconds since 1970) among the oldest `most`. Returns how many. Reads no other
-- rows: ids increase with time. Only the owner may remove rows of the last 30 days.
create function everytick_prune_audit(before bigint, most bigint default 1000) returns bigint
language plpgsql security definer as $$
declare
    removed bigint;
begin
    if before > everytick_now() - 30 * 86400000::bigint and not pg_has_role(session_user, current_user, 'usage') then
        raise exception 'audit rows of the last 30 days stay' using errcode = 'invalid_parameter_value';
    end if;
    delete from audit
     where id in (select id from (select id, at from audit order by id limit most) as oldest where at < before);
    get diagnostics removed = row_count;
    return removed;
end $$;

-- These functions run as the owner. A fixed path means that they never find the objects of another user.
do $$
declare
    f regprocedure;
begin
    for f in select oid::regprocedure from pg_proc
              where pronamespace = current_schema()::regnamespace
                and proname in ('everytick_fill_tenant', 'everytick_protect_table', 'everytick_make_day', 'everytick_detach_day',
                                'everytick_drop_day', 'everytick_prune_audit')
    loop
        execute format('alter function %s set search_path = %I, pg_temp', f, current_schema());
        execute format('revoke all on function %s from public', f);
    end loop;
end $$;
