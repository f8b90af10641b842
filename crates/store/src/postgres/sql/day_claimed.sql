-- Whether a run with an id from $1 to before $2 is claimed. Key: runs.
select exists (select 1 from runs where id >= $1 and id < $2 and state = 1);
