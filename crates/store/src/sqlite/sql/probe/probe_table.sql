-- Reads the SQL that created the table of runs and its index.
select sql from sqlite_schema where name in ('runs', 'runs_history') order by type desc;
