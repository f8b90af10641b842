-- Removes calendar $2 of tenant $1. Key: calendars.
delete from calendars where tenant = $1 and name = $2;
