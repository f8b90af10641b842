-- Reads the end of the last skip range of job $1. Index: skip_ranges_history, backwards.
select to_tick from skip_ranges where job = $1 order by id desc limit 1;
