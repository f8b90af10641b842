-- Removes the runs in ?1 from the failures. Keys: tenants, failures.
delete from failures
 where (tenant, run) in (select t.id, unhex(gone.value) from tenants t cross join json_each(?1) as gone);
