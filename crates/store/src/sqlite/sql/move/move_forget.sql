-- Removes the mark of a move from the file.
drop table moved_to;
