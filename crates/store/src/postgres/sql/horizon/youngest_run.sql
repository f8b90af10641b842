-- Reads the highest id of all runs. Primary key: runs, backwards; the days ahead are empty.
select id from runs order by id desc limit 1;
