-- Notes that the jobs in $1, which are held, are planned by the zone data $2 from here on. Key: epochs.
update epochs set zone_data = greatest(zone_data, $2) where job = any($1);
