-- Writes tenant ?1. ?2 state, ?3 work, ?4 quotas, ?5 own quotas, ?6 egress, ?7 own egress, ?8 shell, ?9 when it was suspended.
-- Primary key: tenants.
update tenants
   set state = ?2, work = ?3, quotas = ?4, own_quotas = ?5, egress = ?6, own_egress = ?7, shell = ?8, suspended_at = ?9
 where id = ?1;
