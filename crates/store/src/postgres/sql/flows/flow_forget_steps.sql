-- Removes all steps of $1, which is not a flow: its root was pruned, or no job depends on the root's job. Index: flow_steps_flow.
delete from flow_steps where flow = $1;
