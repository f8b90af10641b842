-- Removes those of the flows $1, whose roots are gone, of which no run is left. Runs of a flow have the time of its id in theirs,
-- the first twelve digits: the runs of each instant are read once, for all its flows. `offset 0` keeps the bounds of the id as
-- the way to the runs. Keys: flows, runs.
with kept as materialized (
    select r.flow
      from (select distinct left(asked.id::text, 13) as instant from unnest($1::uuid[]) as asked (id)) i
     cross join lateral (
            select flow
              from runs
             where id >= (i.instant || '-0000-0000-000000000000')::uuid
               and id <= (i.instant || '-ffff-ffff-ffffffffffff')::uuid
               and flow is not null
            offset 0) r
)
delete from flows where id = any($1) and id not in (select flow from kept);
