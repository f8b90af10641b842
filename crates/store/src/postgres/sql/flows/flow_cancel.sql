-- Cancels flow $1 at time $2, unless it is cancelled already: it starts no more runs. Primary key: flows.
update flows set cancelled_at = $2 where id = $1 and cancelled_at is null;
