-- Notes rows that cannot be decoded, as seen at ?1. ?2 JSON array of [relation, key, error]. Primary key: unreadable.
insert into unreadable (relation, key, error, seen_at)
select value ->> 0, value ->> 1, value ->> 2, ?1 from json_each(?2) where true
    on conflict (relation, key) do update set error = excluded.error, seen_at = excluded.seen_at;
