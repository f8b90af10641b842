-- Locks run $2 of tenant $1 and reads its state. Primary key: runs.
select state from runs where id = $2 and tenant = $1 for update;
