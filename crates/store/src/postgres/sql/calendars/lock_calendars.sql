-- Share-locks the calendars $2 of tenant $1, in order of name, so that no edit changes them. Primary key: calendars.
select name from calendars where tenant = $1 and name = any($2) order by name for share;
