-- The partitions that a region has claimed. Scans partitions, which are few.
select partition, home_region from partitions where home_region is not null order by partition;
