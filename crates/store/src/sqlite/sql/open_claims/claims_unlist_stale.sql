-- Removes stale rows from open_claims. ?1 JSON array of [run, fence]. Primary key: open_claims.
-- A row that a newer claim has changed has another fence and stays.
delete from open_claims
 where (run, fence) in (select unhex(value ->> 0), value ->> 1 from json_each(?1));
