-- Frees, at $3, those of the partitions named in $1 that incarnation $2 holds. Key: partitions.
update partitions set holder = null, since = $3 where partition = any($1) and holder = $2;
