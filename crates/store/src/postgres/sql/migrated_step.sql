-- Notes a step taken.
insert into schema_steps (step, name, works_from) values ($1, $2, $3);
