-- Sets setting $1 to $2. Primary key: settings.
insert into settings (name, value) values ($1, $2)
on conflict (name) do update set value = excluded.value;
