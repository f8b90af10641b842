-- Reads what the login role may do with this database. Sent as plain text, outside of a transaction. Scans pg_roles, a small table.
-- `owns`: it has the privileges of the owner of the tables, or there are none yet. `member`: it may become both roles of the
-- application. `inherits`: it has their privileges without that. `protected`: row-level security is installed.
select r.rolname::text as role, coalesce(current_schema()::text, '') as schema, r.rolsuper or r.rolbypassrls as bypasses,
       to_regclass('schema_steps') is not null as migrated,
       coalesce((select pg_has_role(c.relowner, 'usage') from pg_class c where c.oid = to_regclass('schema_steps')), true) as owns,
       (select count(*) = 2 from pg_roles m where m.rolname in ('everytick_api', 'everytick_engine') and pg_has_role(m.oid, 'member'))
           as member,
       exists (select 1 from pg_roles m where m.rolname in ('everytick_api', 'everytick_engine') and pg_has_role(m.oid, 'usage'))
           as inherits,
       coalesce((select c.relforcerowsecurity from pg_class c where c.oid = to_regclass('runs')), false) as protected,
       coalesce(has_schema_privilege(current_schema(), 'create'), false) as creates
  from pg_roles r
 where r.rolname = current_user;
