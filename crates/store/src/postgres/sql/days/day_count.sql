-- Counts the runs of a day. Scans the day's table.
select count(*) from runs_of_the_day;
