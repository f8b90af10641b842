-- Notes that the claims of the lease of incarnation $1, held alone, are listed up to id $2. Key: leases.
update leases set compared_to = greatest(compared_to, $2) where incarnation = $1;
