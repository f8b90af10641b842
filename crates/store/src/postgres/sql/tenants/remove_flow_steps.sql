-- Removes the rows of the runs $1. Primary key: flow_steps.
delete from flow_steps where run = any($1);
