-- Counts the secrets of tenant $1. Primary key: secrets.
select count(*) from secrets where tenant = $1;
