-- Flow $1 starts nothing more from $2 on. Key: flows.
update flows set cancelled_at = $2 where id = $1 and cancelled_at is null;
