-- Removes the cursors of the jobs $1. Primary key: cursors.
delete from cursors where job = any($1);
