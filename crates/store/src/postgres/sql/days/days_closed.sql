-- Reads the first instant whose day is not being dropped, and share-locks it until this transaction ends. Primary key: counters.
select value from counters where name = 'days_closed' for share;
