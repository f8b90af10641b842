-- Sets setting ?1 to the number ?2, unless it has a higher one. Primary key: settings.
insert into settings (name, value) values (?1, cast(?2 as text))
on conflict (name) do update set value = excluded.value
 where cast(settings.value as integer) < cast(excluded.value as integer);
