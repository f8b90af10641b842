-- Reads the current fences of the runs $1. Primary key: runs. Only the test mutant that settles under any fence uses this.
select id, fence from runs where id = any($1);
