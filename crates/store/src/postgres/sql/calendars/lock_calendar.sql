-- Locks calendar $2 of tenant $1: no other transaction edits it, or creates or edits a job that names it. Primary key: calendars.
select version from calendars where tenant = $1 and name = $2 for update;
