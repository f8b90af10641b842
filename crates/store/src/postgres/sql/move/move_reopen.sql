-- Marks move $1 as unfinished again: no node serves this database any more. Primary key: moves.
update moves set finished_at = null where id = $1;
