-- Deletes secret $2 of tenant $1. Primary key: secrets.
delete from secrets where tenant = $1 and name = $2;
