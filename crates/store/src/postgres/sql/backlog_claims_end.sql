-- Waits for the claims that nodes have under way: they share their lease rows. Those that begin later see the marks. Key: leases.
select incarnation from leases where not ended order by incarnation for no key update;
