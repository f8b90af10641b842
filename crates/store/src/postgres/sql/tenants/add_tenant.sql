-- Inserts the row of tenant $1 if it is missing, unless it was removed: ids up to $2 were given. Primary key: tenants.
insert into tenants (id, name) select $1::integer, 'tenant-' || $1::integer where $1::integer > $2::integer on conflict (id) do nothing;
