-- Which zone data the cursors were planned with. Key: counters.
select value from counters where name = 'zone_data';
