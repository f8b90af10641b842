-- Removes calendar ?2 of tenant ?1. Primary key: calendars.
delete from calendars where tenant = ?1 and name = ?2;
