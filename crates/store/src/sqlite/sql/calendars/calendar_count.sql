-- Counts the calendars of tenant ?1. Primary key: calendars.
select count(*) from calendars where tenant = ?1;
