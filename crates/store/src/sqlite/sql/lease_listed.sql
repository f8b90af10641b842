-- Notes that all claims of the lease of incarnation ?1, which has ended, are listed. Key: leases.
update leases set open_from = ?2 where incarnation = ?1 and ended = 1;
