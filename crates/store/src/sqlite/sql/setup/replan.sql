-- Lowers the cursors that lie after ?1 to ?1, so that the next ticks are computed again. Index: cursors_next.
update cursors set next_tick = ?1 where partition = 0 and next_tick > ?1;
