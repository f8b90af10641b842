-- Releases, at ?3, those of the partitions ?1 that incarnation ?2 owns. Primary key: partitions.
update partitions set holder = null, since = ?3 where partition in (select value from json_each(?1)) and holder = ?2;
