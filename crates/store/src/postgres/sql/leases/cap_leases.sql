-- Shortens leases that end more than 1 s later than $1 + their TTL: they were renewed while the database clock was ahead.
-- Nodes of the previous release store no TTL; for them $2 applies, the longest TTL allowed, in milliseconds.
-- Scans leases, a small table. Skips locked rows until the next renewal.
update leases set until = $1 + coalesce(ttl_ms, $2)
 where incarnation = any (array(
        select incarnation from leases where not ended and until > $1 + coalesce(ttl_ms, $2) + 1000 for update skip locked));
