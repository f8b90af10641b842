-- Whether the file has a table for the mark of a move. Scans sqlite_schema, a small table.
select count(*) from sqlite_schema where type = 'table' and name = 'moved_to';
