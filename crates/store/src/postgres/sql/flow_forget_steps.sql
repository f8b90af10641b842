-- Removes all steps of flow $1, which has no row and no root. Index: flow_steps_flow.
delete from flow_steps where flow = $1;
