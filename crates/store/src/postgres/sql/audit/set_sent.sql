-- Sets setting $1 to the number $2, unless it has a higher one. Primary key: settings.
insert into settings (name, value) values ($1, ($2::bigint)::text)
on conflict (name) do update set value = excluded.value where settings.value::bigint < excluded.value::bigint;
