-- Removes those of the flows in ?1, whose roots are gone, of which no run is left. Runs of a flow have the time of its id in theirs,
-- the first six bytes: the runs of each instant are read once, for all its flows. Keys: flows, runs.
with asked(id) as materialized (
    select unhex(value) from json_each(?1)
), kept(flow) as materialized (
    select r.flow
      from (select distinct substr(id, 1, 6) as instant from asked) i
     cross join runs r on r.id >= i.instant and r.id < cast(i.instant || x'ff' as blob)
     where r.flow is not null
)
delete from flows where id in (select id from asked where id not in (select flow from kept));
