-- What waits of job ?1 waits in queue ?2, or for a node, from ?5 on; ?3 and ?4 are what its priority is worth on time and late. Index: waiting_job.
update waiting
   set queue = ?2, rank = iif(?2 is null, null, iif(late = 1, ?5 - ?4, due_at - ?3))
 where job = ?1 and queue is not ?2;
