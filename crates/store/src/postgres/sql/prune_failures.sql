-- Removes the runs in $1 from the failures. Keys: tenants, failures.
delete from failures f using tenants t where f.tenant = t.id and f.run = any($1);
