-- Notes rows that cannot be decoded, as seen at $4. Arrays: $1 relation, $2 key, $3 error. Primary key: unreadable.
insert into unreadable (relation, key, error, seen_at)
select relation, key, error, $4 from unnest($1::text[], $2::text[], $3::text[]) as r (relation, key, error)
 order by relation, key
    on conflict (relation, key) do update set error = excluded.error, seen_at = excluded.seen_at;
