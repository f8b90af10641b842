-- The cursors are planned with the zone data ?1 from here on. Key: counters.
update counters set value = ?1 where name = 'zone_data';
