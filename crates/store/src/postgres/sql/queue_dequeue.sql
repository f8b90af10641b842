-- Takes those of the runs $1 from among the waiting that still wait in queue $3 of tenant $2, and that nobody else is taking. Key: waiting.
with due as materialized (
    select run from waiting where run = any($1) and tenant = $2 and queue = $3 order by run for update skip locked
)
delete from waiting w using due where w.run = due.run returning w.run, w.key;
