-- Every partition. Scans partitions, which are few.
select partition, holder, fence, since from partitions order by partition;
