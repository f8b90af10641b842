-- Sets the end of the move to ?1, if it is not set. Scans moved_to, which has one row.
update moved_to set finished_at = ?1 where finished_at is null;
