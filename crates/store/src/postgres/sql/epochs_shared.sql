-- Holds the jobs $1 against edits, in order; tells of which the other runs are to be looked at. Key: epochs.
select job, guarded from epochs where job = any($1) order by job for key share;
