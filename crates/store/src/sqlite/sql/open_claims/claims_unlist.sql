-- Removes the runs ?1, which no node has claimed any more, from open_claims. Primary key: open_claims.
delete from open_claims where run in (select unhex(value) from json_each(?1));
