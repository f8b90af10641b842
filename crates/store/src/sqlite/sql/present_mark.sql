-- The number of the last change. Key: counters.
select value from counters where name = 'change';
