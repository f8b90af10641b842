-- Removes the rows of the runs ?1. Primary key: open_claims.
delete from open_claims where run in (select unhex(value) from json_each(?1));
