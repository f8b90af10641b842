-- Reads the ids of the sessions of user $1 with token $2, least recently used first. Index: sessions_user.
select id
  from sessions
 where user_name = $1 and token is not distinct from $2
 order by seen_at, id;
