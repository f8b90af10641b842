-- Every partition. Scans partitions, which are few.
select partition, holder, fence, since, home_region from partitions order by partition;
