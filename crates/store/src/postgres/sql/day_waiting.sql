-- Whether a run with an id from $1 to before $2 waits. Key: waiting.
select exists (select 1 from waiting where run >= $1 and run < $2);
