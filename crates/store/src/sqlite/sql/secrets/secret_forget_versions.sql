-- Deletes the versions of secret ?2 of tenant ?1 up to version ?3. Primary key: secret_versions.
delete from secret_versions where tenant = ?1 and name = ?2 and version <= ?3;
