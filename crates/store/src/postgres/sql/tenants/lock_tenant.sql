-- Locks tenant $1, so that creates run one at a time, and reads what limits them. Primary key: tenants.
select state, quotas, own_quotas, jobs from tenants where id = $1 for no key update;
