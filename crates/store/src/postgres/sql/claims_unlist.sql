-- Removes the runs $1, which are held and no longer claimed by a node, from open_claims. A row that another session has locked
-- stays (SKIP LOCKED): it proves nothing, and the next search for claims of its incarnation removes it. Key: open_claims.
delete from open_claims
 where run = any (array(select o.run from open_claims o where o.run = any($1) for update skip locked));
