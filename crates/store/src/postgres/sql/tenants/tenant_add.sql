-- Inserts tenant $1. $2 name, $3 state, $4 work, $5 quotas, $6 own quotas, $7 egress, $8 own egress, $9 shell, $10 when it was
-- created, $11 when it was suspended. Primary key: tenants.
insert into tenants (id, name, state, work, quotas, own_quotas, egress, own_egress, shell, created_at, suspended_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
