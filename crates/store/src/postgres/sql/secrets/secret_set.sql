-- Sets secret $2 of tenant $1 to version $3. $4 hosts, $5 kinds, $6 description, $7 time, $8 actor, $9 previous_until.
-- Primary key: secrets.
insert into secrets (tenant, name, version, hosts, kinds, description, created_at, created_by, updated_at, updated_by, previous_until)
values ($1, $2, $3, $4, $5, $6, $7, $8, $7, $8, $9)
on conflict (tenant, name) do update
   set version = excluded.version, hosts = excluded.hosts, kinds = excluded.kinds, description = excluded.description,
       updated_at = excluded.updated_at, updated_by = excluded.updated_by, previous_until = excluded.previous_until;
