-- Holds the calendars of tenant $1 that $2 names as they are, together with others who do. Key: calendars.
select name from calendars where tenant = $1 and name = any($2) order by name for share;
