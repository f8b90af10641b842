-- Inserts the row of tenant ?1 if it is missing. Primary key: tenants.
insert into tenants (id, name) values (?1, 'tenant-' || ?1) on conflict (id) do nothing;
