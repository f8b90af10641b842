-- How the table of runs was made, and its index.
select sql from sqlite_schema where name in ('runs', 'runs_history') order by type desc;
