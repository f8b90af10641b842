-- Removes the steps of the runs ?1, which the advance of their flow has applied. Primary key: flow_steps.
delete from flow_steps where run in (select unhex(value) from json_each(?1));
