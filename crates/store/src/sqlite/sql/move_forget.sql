-- Takes the mark off.
drop table moved_to;
