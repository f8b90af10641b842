-- Reads the numbers that must not decrease in the target. Primary keys: counters, partitions.
select (select value from counters where name = 'lease_fence') as lease_fence,
       (select value from counters where name = 'zone_data') as zone_data,
       (select max(fence) from partitions) as partition_fence;
