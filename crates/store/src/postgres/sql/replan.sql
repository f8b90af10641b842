-- Lowers the cursors of partition $2 that lie ahead to $1, where their next ticks are looked for anew. Index: cursors_next.
update cursors set next_tick = $1 where partition = $2 and next_tick > $1;
