-- Which of the partitions named in $1 incarnation $2 holds. Key: partitions.
select partition from partitions where partition = any($1) and holder = $2;
