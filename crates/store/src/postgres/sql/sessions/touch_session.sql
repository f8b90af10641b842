-- Notes that the session with id $1 was used at time $2 from address $3, unless that was noted after time $4. Index: sessions_id.
update sessions set seen_at = $2, ip = $3 where id = $1 and seen_at <= $4;
