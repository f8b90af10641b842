-- Removes the failures of the runs ?1. Primary keys: tenants, failures.
delete from failures
 where (tenant, run) in (select t.id, unhex(gone.value) from tenants t cross join json_each(?1) as gone);
