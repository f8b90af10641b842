-- Reads the number of the last migration that was applied.
select max(version) from _sqlx_migrations;
