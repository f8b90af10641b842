-- Ends the leases $1 under the new fence $2. Primary key: leases. The caller has locked the rows, and none has ended.
update leases set ended = true, fence = $2 where incarnation = any($1);
