-- Removes the versions up to ?3 of calendar ?2 of tenant ?1. Primary key: calendar_versions.
delete from calendar_versions where tenant = ?1 and name = ?2 and version <= ?3;
