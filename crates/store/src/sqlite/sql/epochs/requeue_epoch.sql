-- Sets the queue of job ?1 to ?2. Primary key: epochs.
update epochs set queue = ?2 where job = ?1 and queue is not ?2;
