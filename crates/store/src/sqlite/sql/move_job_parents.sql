-- Up to ?1 rows behind the key (?2, ?3). Key: job_parents.
select child, parent, tenant, when_ended
  from job_parents
 where (child, parent) > (?2, ?3)
 order by child, parent
 limit ?1;
