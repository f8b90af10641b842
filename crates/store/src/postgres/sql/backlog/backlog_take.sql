-- Removes up to $3 runs of job $1 up to lot $2 from waiting, and returns them. Index: waiting_job.
-- Skips locked rows; the next batch takes them.
with marked as materialized (
    select ctid as place from waiting where job = $1 and lot <= $2 limit $3 for update skip locked
)
delete from waiting w using marked where w.ctid = marked.place returning w.run;
