-- Move $1 is over, if each of its parts is done. Keys: moves, move_parts.
update moves set finished_at = everytick_now()
 where id = $1 and finished_at is null and not exists (select 1 from move_parts where move = $1 and not done);
