-- The lowest id that incarnation $1 may have claimed. Key: leases.
select open_from from leases where incarnation = $1;
