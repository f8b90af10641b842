-- Revokes the valid token with id $1 at time $2. Index: tokens_id.
update tokens set revoked_at = $2 where id = $1;
