-- Waits for the claims that the node of incarnation $1 has under way: they share its lease. Those that begin later see the marks.
-- Key: leases.
select 1 from leases where incarnation = $1 for no key update;
