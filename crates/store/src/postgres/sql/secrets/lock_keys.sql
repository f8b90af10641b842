-- Locks the operator keys, in order of id. Scans keys, a small table.
select id from keys order by id for update;
