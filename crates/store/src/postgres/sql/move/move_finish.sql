-- Finishes move $1 if all its parts are done. Primary keys: moves, move_parts.
update moves set finished_at = everytick_now()
 where id = $1 and finished_at is null and not exists (select 1 from move_parts where move = $1 and not done);
