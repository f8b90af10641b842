-- How many calendars tenant ?1 has. Key: calendars.
select count(*) from calendars where tenant = ?1;
