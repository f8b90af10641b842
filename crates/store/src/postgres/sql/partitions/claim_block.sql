-- Makes the partitions $1 the home of region $2. Primary key: partitions. The caller has locked the rows.
update partitions set home_region = $2 where partition = any($1);
