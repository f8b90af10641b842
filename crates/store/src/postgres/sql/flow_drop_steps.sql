-- Removes the steps of the runs $1, which are taken in. Key: flow_steps.
delete from flow_steps where run = any($1);
