-- Removes the attempts at the runs in $1. Key: attempts.
delete from attempts where run = any($1);
