-- Notes that the jobs $1 are planned with zone data $2, unless with newer data already. Primary key: epochs.
-- The caller has locked the rows.
update epochs set zone_data = greatest(zone_data, $2) where job = any($1);
