-- Delegates waiting runs to other living nodes that accept work. Arrays: $1 run, $2 incarnation. Primary keys: waiting, leases.
-- Only runs in the partitions $3 (a bitmap) that are due at $4 and not delegated yet. Skips locked rows; a later pass takes them.
-- `lateral` leaves the planner no way but the key. A node that dies at this moment can still get a run: see undelegate.sql.
-- `& 255`: a damaged partition number must not fail the statement.
with due as materialized (
    select w.place, asked.node
      from unnest($1::uuid[], $2::uuid[]) as asked (run, node)
     cross join lateral (
            select ctid as place
              from waiting
             where run = asked.run and coalesce(queue is null, false) and for_node is null and due_at <= $4
               and get_bit($3::bytea, partition & 255) = 1
               for update skip locked) w
     where exists (select 1 from leases l where l.incarnation = asked.node and not l.ended and l.holds and l.until > $4)
)
update waiting w set for_node = due.node from due where w.ctid = due.place returning w.run;
