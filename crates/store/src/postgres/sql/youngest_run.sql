-- The highest id of all runs. Key: runs, backwards; the days ahead are empty.
select id from runs order by id desc limit 1;
