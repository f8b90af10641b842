-- Removes those of the flows $1, whose roots are gone, that have no runs left. Primary keys: flows, runs.
-- Runs of a flow have the time of the flow's id in theirs: the first twelve digits. So the runs of each instant are read once for
-- all its flows. `offset 0` makes the planner find the runs by these id bounds.
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
