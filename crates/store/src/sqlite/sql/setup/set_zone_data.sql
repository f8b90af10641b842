-- Notes that the cursors are planned with zone data ?1. Primary key: counters.
update counters set value = ?1 where name = 'zone_data';
