-- Reads the progress of each part of move $1. Primary key: move_parts.
select part, place, moved, done from move_parts where move = $1;
