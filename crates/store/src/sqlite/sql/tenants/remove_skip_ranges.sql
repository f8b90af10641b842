-- Removes the rows of job ?1. Index: skip_ranges_history.
delete from skip_ranges indexed by skip_ranges_history where job = ?1;
