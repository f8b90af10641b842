-- Calendar $2 of tenant $1 is at version $3 since $4, by $5. Key: calendars.
insert into calendars (tenant, name, version, created_at, created_by, updated_at) values ($1, $2, $3, $4, $5, $4)
on conflict (tenant, name) do update set version = excluded.version, updated_at = excluded.updated_at;
