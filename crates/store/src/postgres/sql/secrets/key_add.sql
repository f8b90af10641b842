-- Inserts operator key $1 with check value $2 at time $3, unless it exists. Primary key: keys.
insert into keys (id, check_value, created_at) values ($1, $2, $3) on conflict (id) do nothing;
