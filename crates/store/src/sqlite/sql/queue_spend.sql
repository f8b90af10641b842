-- The rate of queue ?2 of tenant ?1 has spent the time until ?3. Key: queues.
update queues set spent_until = ?3 where tenant = ?1 and name = ?2;
