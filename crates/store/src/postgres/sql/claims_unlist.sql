-- Removes the runs $1, which are held and no longer claimed by a node, from open_claims. Key: open_claims.
delete from open_claims where run = any($1);
