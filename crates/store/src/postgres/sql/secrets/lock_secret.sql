-- Locks secret $2 of tenant $1: no other transaction changes it, or creates or edits a job that refers to it. Primary key: secrets.
select version from secrets where tenant = $1 and name = $2 for update;
