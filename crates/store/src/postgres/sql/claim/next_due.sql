-- Finds the due time of the next waiting run of the partitions $2 (a bitmap) that is due after $1. Index: waiting_due.
-- `coalesce(queue, '')` is the condition of that index. `& 255`: a damaged partition number must not fail the statement.
select due_at from waiting where coalesce(queue, '') = '' and due_at > $1 and get_bit($2::bytea, partition & 255) = 1 order by due_at limit 1;
