-- Records schema step $1 with name $2; releases that know step $3 work with it.
insert into schema_steps (step, name, works_from) values ($1, $2, $3);
