-- What jobs take on disk, with their indexes: definitions, epochs and cursors; and the audit trail.
select (pg_total_relation_size('jobs') + pg_total_relation_size('epochs') + pg_total_relation_size('cursors'))::bigint as jobs,
       pg_total_relation_size('audit')::bigint as audit;
