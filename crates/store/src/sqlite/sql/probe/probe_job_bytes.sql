-- Reads the bytes that jobs (definitions, epochs, cursors) and the audit trail take in the file, with their indexes.
select coalesce(sum(s.pgsize) filter (where m.tbl_name in ('jobs', 'epochs', 'cursors')), 0) as jobs,
       coalesce(sum(s.pgsize) filter (where m.tbl_name = 'audit'), 0) as audit
  from dbstat s join sqlite_schema m on m.name = s.name
 where s.aggregate = true;
