-- Finds the lowest id that a search among failed runs may read: the one at offset ?4, newest first, of tenant ?1, among ids from
-- ?2 to before ?3. Primary key: failures, backwards. No row: there are fewer.
select run from failures where tenant = ?1 and run >= ?2 and run < ?3 order by run desc limit 1 offset ?4;
