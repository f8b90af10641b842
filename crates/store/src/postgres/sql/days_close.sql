-- Days before $1 are being dropped. Waits for the redrives under way. Key: counters.
update counters set value = greatest(value, $1) where name = 'days_closed';
