-- Shortens the leases that end more than a second further ahead of $1 than they live: they were renewed while the clock was ahead.
-- Leases of the release before may be as long as the longest that can be set, $2. Scans leases, which are few; those that somebody
-- holds are left for the next time.
update leases set until = $1 + coalesce(ttl_ms, $2)
 where incarnation = any (array(
        select incarnation from leases where not ended and until > $1 + coalesce(ttl_ms, $2) + 1000 for update skip locked));
