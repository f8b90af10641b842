-- Ends the ticks of the jobs whose cursor lies before ?1. Index: cursors_next.
update cursors set next_tick = null where partition = 0 and next_tick < ?1;
