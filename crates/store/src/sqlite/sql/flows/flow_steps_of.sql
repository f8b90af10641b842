-- Lists the steps of flow ?1. Index: flow_steps_flow.
select run from flow_steps where flow = ?1;
