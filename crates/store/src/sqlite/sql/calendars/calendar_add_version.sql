-- Inserts version ?3 of calendar ?2 of tenant ?1, valid for ticks after ?4, with the definition ?5.
-- Primary key: calendar_versions.
insert into calendar_versions (tenant, name, version, valid_from, spec) values (?1, ?2, ?3, ?4, ?5);
