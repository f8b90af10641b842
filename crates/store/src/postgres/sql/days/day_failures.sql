-- Removes the failures of runs with ids from $1 to before $2. Primary keys: tenants, failures.
delete from failures f using tenants t where f.tenant = t.id and f.run >= $1 and f.run < $2;
