-- Part $2 of move $1 has come from the place $3 to $4, with $5 rows in all; $6 says that it is done. Key: move_parts.
update move_parts set place = $4, moved = $5, done = $6
 where move = $1 and part = $2 and place is not distinct from $3 and not done;
