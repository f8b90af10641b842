-- Removes the runs in ?1, which are no longer claimed by a node, from open_claims. Key: open_claims.
delete from open_claims where run in (select unhex(value) from json_each(?1));
