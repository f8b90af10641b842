-- Jobs due before $1 have no more ticks. Index: cursors_next, once a partition.
update cursors set next_tick = null where partition = any (array(select partition from partitions)) and next_tick < $1;
