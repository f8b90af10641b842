-- Reads the zone data version that the cursors were planned with. Primary key: counters.
select value from counters where name = 'zone_data';
