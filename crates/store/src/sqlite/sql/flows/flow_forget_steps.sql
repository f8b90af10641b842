-- Removes all steps of flow ?1. Index: flow_steps_flow.
delete from flow_steps where flow = ?1;
