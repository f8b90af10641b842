-- Hands the waiting runs [run, node] of the partitions $3 that are due at $4 to living nodes that take work. Keys: waiting,
-- leases. `lateral` leaves no way but the key; rows that somebody holds are left for the next time. A node that dies at this
-- moment may be given a run: see undelegate.sql.
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
