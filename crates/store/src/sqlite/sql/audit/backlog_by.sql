-- Reads the actor of the last cancellation of a long backlog with the subject ?2, the job's id, of tenant ?1, up to time ?3.
-- Index: audit_subject, backwards.
select actor
  from audit indexed by audit_subject
 where tenant = ?1 and subject = ?2 and action = 'backlog' and at <= ?3 and detail ->> 'backlog' = 'cancel'
 order by id desc
 limit 1;
