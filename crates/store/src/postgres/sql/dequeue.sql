-- Removes run $1 from waiting. Primary key: waiting.
delete from waiting where run = $1;
