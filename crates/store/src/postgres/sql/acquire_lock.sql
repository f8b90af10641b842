-- Holds the partitions named in $1, in order. Key: partitions.
select partition from partitions where partition = any($1) order by partition for update;
