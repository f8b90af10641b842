-- Whether another incarnation of node $2 than $1 lives at $3. Scans leases, which are few.
select exists (select 1 from leases where node = $2 and incarnation <> $1 and not ended and until > $3);
