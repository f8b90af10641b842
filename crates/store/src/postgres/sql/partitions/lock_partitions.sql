-- Locks the partitions $1 in ascending order. Primary key: partitions.
select partition from partitions where partition = any($1) order by partition for update;
