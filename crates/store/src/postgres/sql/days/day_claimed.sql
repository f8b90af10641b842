-- Whether a run with an id from $1 to before $2 is claimed (state 1). Primary keys: runs, open_claims.
-- Nodes have claims on runs below $3, the lowest open_from of all leases, only if open_claims lists them. So only those are read.
select exists (select 1 from runs where id >= $1 and id >= $3 and id < $2 and state = 1)
       or exists (select 1
                    from open_claims c
                   where c.run >= $1 and c.run < $2
                     and coalesce((select r.state = 1 and r.incarnation = c.incarnation from runs r where r.id = c.run), false));
