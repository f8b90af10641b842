-- Takes those of the runs $1 from among the waiting that stand in the partitions $3, are due at
-- $2, and that nobody else is taking. Key: waiting.
with due as materialized (
    select run from waiting where run = any($1) and queue is null and due_at <= $2 and get_bit($3::bytea, partition) = 1 order by run for update skip locked
)
delete from waiting w using due where w.run = due.run returning w.run;
