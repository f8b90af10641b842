-- Reads the name of the node that owns partition ?1 and whose lease is alive at ?2. Primary keys: partitions, leases.
select l.node
  from partitions p
  join leases l on l.incarnation = p.holder
 where p.partition = ?1 and l.ended = 0 and l.until > ?2;
