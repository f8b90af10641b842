-- Sets the instant up to which the rate limit of queue $2 of tenant $1 is spent to $3 (microseconds). Primary key: queues.
-- The caller has locked the row.
update queues set spent_until = $3 where tenant = $1 and name = $2;
