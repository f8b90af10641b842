-- Takes the runs $1 from among the waiting. Key: waiting.
delete from waiting where run = any($1);
