-- The move has been over since ?1.
update moved_to set finished_at = ?1 where finished_at is null;
