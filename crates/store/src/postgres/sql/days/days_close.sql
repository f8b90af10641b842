-- Closes the days before $1 to redrives, because they are being dropped. Primary key: counters.
-- The update waits for redrives in flight, which share-lock the row.
update counters set value = greatest(value, $1) where name = 'days_closed';
