-- Makes the row of tenant $1 where it is missing. Key: tenants.
insert into tenants (id, name) values ($1::integer, 'tenant-' || $1::integer) on conflict (id) do nothing;
