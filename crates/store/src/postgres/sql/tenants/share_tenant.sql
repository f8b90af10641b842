-- Reads the state and the quotas of tenant $1, which no other transaction then changes. Primary key: tenants.
-- The weakest lock: it waits neither for creates nor for counts of jobs.
select state, quotas, own_quotas, jobs from tenants where id = $1 for key share;
