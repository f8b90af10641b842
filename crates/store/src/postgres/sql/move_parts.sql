-- How far the parts of move $1 have come. Key: move_parts.
select part, place, moved, done from move_parts where move = $1;
