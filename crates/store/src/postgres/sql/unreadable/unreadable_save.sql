-- Notes rows that cannot be decoded, as seen at $1. Arrays: $2 relation, $3 key, $4 error. Primary key: unreadable.
insert into unreadable (relation, key, error, seen_at)
select relation, key, error, $1 from unnest($2::text[], $3::text[], $4::text[]) as r (relation, key, error)
 order by relation, key
    on conflict (relation, key) do update set error = excluded.error, seen_at = excluded.seen_at;
