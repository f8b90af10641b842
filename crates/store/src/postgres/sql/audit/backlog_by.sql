-- Reads the actor of the last audit row, up to time $3, about the cancellation of a long backlog of job $2 (its id as the subject)
-- of tenant $1.
-- Index: audit_subject, backwards.
select actor
  from audit
 where tenant = $1 and subject = $2 and action = 'backlog' and at <= $3 and detail::json ->> 'backlog' = 'cancel'
 order by id desc
 limit 1;
