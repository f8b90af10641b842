-- Takes back runs that were delegated to nodes which have ended or are stopping, so that the owners of their partitions claim
-- them. Index: waiting_for_node. Primary key: leases. Skips locked rows; the next pass takes them.
update waiting set for_node = null
 where run = any (array(
        select w.run
          from waiting w
         where w.for_node is not null
           and not exists (select 1 from leases l where l.incarnation = w.for_node and not l.ended and l.holds)
           for update skip locked));
