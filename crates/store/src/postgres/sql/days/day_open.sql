-- Whether a detached day has an open run (state below 2: waiting or claimed), or a flow with an id from $1 to before $2 has
-- steps. Scans the day's table.
select exists (select 1 from runs_of_the_day where state < 2)
    or exists (select 1 from flow_steps where flow >= $1 and flow < $2);
