-- What jobs take in the file, with their indexes: definitions, epochs and cursors; and the audit trail.
select coalesce(sum(s.pgsize) filter (where m.tbl_name in ('jobs', 'epochs', 'cursors')), 0) as jobs,
       coalesce(sum(s.pgsize) filter (where m.tbl_name = 'audit'), 0) as audit
  from dbstat s join sqlite_schema m on m.name = s.name
 where s.aggregate = true;
