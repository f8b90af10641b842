-- Finds the lowest id that a list of flows may read: the flow at offset $3, newest first, among ids from $1 to before $2.
-- Primary key: flows, backwards. No row: there are fewer.
select id from flows where id >= $1 and id < $2 order by id desc offset $3 limit 1;
