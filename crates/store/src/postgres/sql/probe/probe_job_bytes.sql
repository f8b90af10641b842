-- Reads the bytes that jobs (definitions, epochs, cursors) and the audit trail take on disk, with their indexes.
select (pg_total_relation_size('jobs') + pg_total_relation_size('epochs') + pg_total_relation_size('cursors'))::bigint as jobs,
       pg_total_relation_size('audit')::bigint as audit;
