-- Gives the partitions named in $1, which are held, to incarnation $2 at $3, where no lease that has not ended holds them.
-- Keys: partitions, leases.
update partitions p set holder = $2, fence = greatest(p.fence + 1, $3::bigint * 1000), since = $3
 where p.partition = any($1)
   and p.holder is distinct from $2
   and not exists (select 1 from leases l where l.incarnation = p.holder and not l.ended);
