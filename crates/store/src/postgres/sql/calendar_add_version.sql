-- What version $3 of calendar $2 of tenant $1 says, for what lies after $4. Key: calendar_versions.
insert into calendar_versions (tenant, name, version, valid_from, spec) values ($1, $2, $3, $4, $5);
