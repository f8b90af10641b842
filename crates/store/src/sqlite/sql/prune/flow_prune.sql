-- Removes those of the flows ?1, whose roots are gone, that have no runs left. Primary keys: flows, runs.
-- Runs of a flow have the time of the flow's id in theirs: the first six bytes. So the runs of each instant are read once for all
-- its flows.
with asked(id) as materialized (
    select unhex(value) from json_each(?1)
), kept(flow) as materialized (
    select r.flow
      from (select distinct substr(id, 1, 6) as instant from asked) i
     cross join runs r on r.id >= i.instant and r.id < cast(i.instant || x'ff' as blob)
     where r.flow is not null
)
delete from flows where id in (select id from asked where id not in (select flow from kept));
