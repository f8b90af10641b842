-- Lists all partitions. Scans partitions, a small table.
select partition, holder, fence, since from partitions order by partition;
