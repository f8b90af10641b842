-- Notes that the token with id ?1 was used at time ?2 from address ?3, unless that was noted after time ?4. Index: tokens_id.
update tokens set last_used_at = ?2, last_used_ip = ?3 where id = ?1 and (last_used_at is null or last_used_at <= ?4);
