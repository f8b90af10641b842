-- Holds calendar $2 of tenant $1: nobody edits it, nor makes or edits a job that names it, until this ends. Key: calendars.
select version from calendars where tenant = $1 and name = $2 for update;
