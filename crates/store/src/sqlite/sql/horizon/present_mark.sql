-- Reads the highest change number. Primary key: counters.
select value from counters where name = 'change';
