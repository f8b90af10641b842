-- Lists the partitions that are the home of a region. Scans partitions, a small table.
select partition, home_region from partitions where home_region is not null order by partition;
