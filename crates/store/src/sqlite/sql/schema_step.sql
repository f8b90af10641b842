-- The last step of the schema that was made.
select max(version) from _sqlx_migrations;
