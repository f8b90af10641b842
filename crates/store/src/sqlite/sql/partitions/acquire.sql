-- Gives the partitions ?1 to incarnation ?2 at time ?3, unless their owner has a lease that has not ended.
-- Primary keys: partitions, leases. The caller has ended expired leases.
update partitions set holder = ?2, fence = max(fence + 1, ?3 * 1000), since = ?3
 where partition in (select value from json_each(?1))
   and holder is not ?2
   and not exists (select 1 from leases l where l.incarnation = partitions.holder and l.ended = 0);
