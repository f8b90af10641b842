-- The fences that the runs $1 have now, for the named mistake of settling under any. Key: runs.
select id, fence from runs where id = any($1);
