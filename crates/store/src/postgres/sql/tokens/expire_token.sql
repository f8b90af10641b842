-- Lets the token with id $1 expire at $2, if it does not expire earlier. Index: tokens_id.
update tokens set expires_at = $2 where id = $1 and (expires_at is null or expires_at > $2);
