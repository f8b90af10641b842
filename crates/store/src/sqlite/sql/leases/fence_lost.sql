-- Ends the leases of the incarnations ?1 under the new fence ?2. Primary key: leases.
update leases set ended = 1, fence = ?2 where incarnation in (select unhex(value) from json_each(?1)) and ended = 0;
