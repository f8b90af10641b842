-- Sets calendar $2 of tenant $1 to version $3 at time $4; $5 is the creator if it is new. Primary key: calendars.
insert into calendars (tenant, name, version, created_at, created_by, updated_at) values ($1, $2, $3, $4, $5, $4)
on conflict (tenant, name) do update set version = excluded.version, updated_at = excluded.updated_at;
