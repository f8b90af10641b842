-- Removes the failures of the runs $2 of tenant $1. Primary key: failures.
delete from failures where tenant = $1 and run = any($2);
