-- Inserts operator key $1 with check value $2 at time $3. If it exists, only locks its row, so that it is not forgotten before
-- the value that needs it is committed. Primary key: keys.
insert into keys (id, check_value, created_at) values ($1, $2, $3) on conflict (id) do update set id = excluded.id;
