-- Lists all partitions. Scans partitions, a small table.
select partition, holder, fence, since, null as home_region from partitions order by partition;
