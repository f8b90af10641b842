-- Ends the leases named in $1, which are held, under the raised fence $2. Key: leases.
update leases set ended = true, fence = $2 where incarnation = any($1) and not ended;
