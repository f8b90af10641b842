-- Takes back the waiting runs that were handed to nodes which have ended or are about to stop: the owners of their partitions find
-- them again. Rows that somebody holds are left for the next time. Index: waiting_for_node; key: leases.
update waiting set for_node = null
 where run = any (array(
        select w.run
          from waiting w
         where w.for_node is not null
           and not exists (select 1 from leases l where l.incarnation = w.for_node and not l.ended and l.holds)
           for update skip locked));
