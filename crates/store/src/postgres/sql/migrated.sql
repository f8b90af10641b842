-- The steps taken. Few.
select step, works_from from schema_steps order by step;
