-- Takes run $1 from among the waiting. Key: waiting.
delete from waiting where run = $1;
