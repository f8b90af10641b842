-- Share-locks the secrets $2 of tenant $1, in order of name, so that none is changed or deleted. Primary key: secrets.
select name from secrets where tenant = $1 and name = any($2) order by name for share;
