-- Reads the last number that was given to an audit row; 0 if there is none.
select coalesce((select seq from sqlite_sequence where name = 'audit'), 0);
