-- Ends the ticks of the jobs whose cursor lies before $1. Index: cursors_next, probed once per partition.
update cursors set next_tick = null where partition = any (array(select partition from partitions)) and next_tick < $1;
