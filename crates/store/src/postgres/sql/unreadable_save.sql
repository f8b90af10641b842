-- Notes rows [relation, key, error] $1, $2, $3 as seen at $4. Key: unreadable.
insert into unreadable (relation, key, error, seen_at)
select relation, key, error, $4 from unnest($1::text[], $2::text[], $3::text[]) as r (relation, key, error)
 order by relation, key
    on conflict (relation, key) do update set error = excluded.error, seen_at = excluded.seen_at;
