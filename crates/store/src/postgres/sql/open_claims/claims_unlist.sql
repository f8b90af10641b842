-- Removes the runs $1 from open_claims. Primary key: open_claims. The caller has locked the runs, and no node has them claimed.
-- Skips locked rows: a leftover row proves nothing, and the next search for claims of its incarnation removes it.
delete from open_claims
 where run = any (array(select o.run from open_claims o where o.run = any($1) for update skip locked));
