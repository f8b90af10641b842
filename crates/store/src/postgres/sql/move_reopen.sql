-- Move $1 is not finished: the database is not served any more. Key: moves.
update moves set finished_at = null where id = $1;
