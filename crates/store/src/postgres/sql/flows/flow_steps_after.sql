-- Lists up to $2 flows after id $1 that have steps. Index: flow_steps_flow.
select distinct flow from flow_steps where flow > $1 order by flow limit $2;
