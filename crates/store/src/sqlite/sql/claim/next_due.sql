-- Finds the due time of the next waiting run that is due after ?1. Index: waiting_due.
select min(due_at) from waiting indexed by waiting_due where queue is null and due_at > ?1;
