-- Lists the schema steps made, each with the oldest step that a release must know to work with it.
-- Scans schema_steps, a small table.
select step, works_from from schema_steps order by step;
