-- Ends the leases of older incarnations of node $2, under fence $3. Scans leases, which are few.
update leases set ended = true, fence = $3 where node = $2 and incarnation <> $1 and not ended;
