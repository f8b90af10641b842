-- Lists up to $4 sessions after id $1, by id, that expire after time $2 and were used after $3. Index: sessions_id.
select hash, id, user_name, token, grants, tenant, created_at, seen_at, expires_at, ip
  from sessions
 where id > $1 and expires_at > $2 and seen_at > $3
 order by id
 limit $4;
