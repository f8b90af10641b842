-- Removes the failures of the runs $1. Primary keys: tenants, failures.
delete from failures f using tenants t where f.tenant = t.id and f.run = any($1);
