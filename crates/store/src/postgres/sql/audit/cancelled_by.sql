-- Reads the actors of the cancellations with the subjects $2 of tenant $1. Index: audit_subject.
select a.subject, a.actor
  from unnest($2::text[]) as asked (subject)
  join audit a on a.tenant = $1 and a.subject = asked.subject
 where a.action = 'cancel';
