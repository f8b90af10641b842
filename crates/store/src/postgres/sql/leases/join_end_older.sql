-- Ends the leases of node $2 except that of incarnation $1, under fence $3. Scans leases, a small table.
update leases set ended = true, fence = $3 where node = $2 and incarnation <> $1 and not ended;
