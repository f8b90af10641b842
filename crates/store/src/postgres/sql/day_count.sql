-- How many runs the day has.
select count(*) from runs_of_the_day;
