-- Begins the next lot. Primary key: counters.
update counters set value = value + 1 where name = 'lot';
