-- Makes the partitions in $1, which are held, the home of region $2. Key: partitions.
update partitions set home_region = $2 where partition = any($1);
