-- Removes the runs with ids from $1 to before $2 from the failures. Keys: tenants, failures.
delete from failures f using tenants t where f.tenant = t.id and f.run >= $1 and f.run < $2;
