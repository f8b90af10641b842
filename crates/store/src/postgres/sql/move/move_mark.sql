-- Advances part $2 of move $1 from position $3 to position $4, with $5 rows in total; $6 whether the part is done.
-- Primary key: move_parts. Changes no row if the position is no longer $3: another process moved the part.
update move_parts set place = $4, moved = $5, done = $6
 where move = $1 and part = $2 and place is not distinct from $3 and not done;
