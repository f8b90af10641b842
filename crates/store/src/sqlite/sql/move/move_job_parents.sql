-- Reads up to ?1 rows of job_parents after (?2 child, ?3 parent), for a move. Primary key: job_parents.
select child, parent, tenant, when_ended
  from job_parents
 where (child, parent) > (?2, ?3)
 order by child, parent
 limit ?1;
