-- Gives the partitions $1 to incarnation $2 at time $3, unless their owner has a lease that has not ended.
-- Primary keys: partitions, leases. The caller has locked the rows (lock_partitions.sql) and ended expired leases.
update partitions p set holder = $2, fence = greatest(p.fence + 1, $3::bigint * 1000), since = $3
 where p.partition = any($1)
   and p.holder is distinct from $2
   and not exists (select 1 from leases l where l.incarnation = p.holder and not l.ended);
