-- The cursors are planned with the zone data $1 from here on, unless with newer already. Key: counters.
update counters set value = greatest(value, $1) where name = 'zone_data';
