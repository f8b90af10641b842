-- Removes the rows of job $1. Index: skip_ranges_history.
delete from skip_ranges where job = $1;
