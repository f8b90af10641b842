-- Jobs due before ?1 have no more ticks. Index: cursors_next.
update cursors set next_tick = null where partition = 0 and next_tick < ?1;
