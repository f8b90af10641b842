-- Lists those of the partitions $1 that incarnation $2 owns. Primary key: partitions.
select partition from partitions where partition = any($1) and holder = $2;
