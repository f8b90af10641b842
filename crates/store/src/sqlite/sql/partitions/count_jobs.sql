-- Counts the jobs with a next tick in each partition, up to ?1 in each. Index: cursors_next. Scans partitions, a small table.
select partition,
       (select count(*)
          from (select 1 from cursors
                 where cursors.partition = partitions.partition and cursors.next_tick is not null limit ?1) counted) as jobs
  from partitions;
