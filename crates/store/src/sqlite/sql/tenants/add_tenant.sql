-- Inserts the row of tenant ?1 if it is missing, unless it was removed: ids up to ?2 were given. Primary key: tenants.
insert into tenants (id, name) select ?1, 'tenant-' || ?1 where ?1 > ?2 on conflict (id) do nothing;
