-- The first instant whose day is not being dropped; it stays so until this transaction ends. Key: counters.
select value from counters where name = 'days_closed' for share;
