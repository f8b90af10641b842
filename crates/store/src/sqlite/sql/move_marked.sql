-- Whether the file has ever been marked. Scans sqlite_schema, which is small.
select count(*) from sqlite_schema where type = 'table' and name = 'moved_to';
