-- Whether a newer incarnation of node $2 lives at $3, where incarnation $1 has joined before. Scans leases, which are few.
select exists (select 1 from leases mine
                 join leases newer on newer.node = $2 and newer.incarnation <> $1 and not newer.ended
                                  and newer.until > $3 and newer.started_at >= mine.started_at
                where mine.incarnation = $1 and mine.ended);
