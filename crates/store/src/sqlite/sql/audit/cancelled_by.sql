-- Reads the actors of the cancellations with the subjects ?2 (a JSON array) of tenant ?1. Index: audit_subject.
select a.subject, a.actor
  from json_each(?2) as asked
 cross join audit a indexed by audit_subject on a.tenant = ?1 and a.subject = asked.value
 where a.action = 'cancel';
