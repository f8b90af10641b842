-- The runs of job ?1 wait in queue ?2. Key: epochs.
update epochs set queue = ?2 where job = ?1 and queue is not ?2;
