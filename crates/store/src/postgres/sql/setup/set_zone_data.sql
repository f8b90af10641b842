-- Notes that the cursors are planned with zone data $1, unless with newer data already. Primary key: counters.
update counters set value = greatest(value, $1) where name = 'zone_data';
