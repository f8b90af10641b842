-- Counts the tokens that are valid at time $1, expire until $2, and have not been rotated. Scans tokens, a small table.
select count(*)
  from tokens
 where revoked_at is null and expires_at > $1 and expires_at <= $2
   and id not in (select rotated_from from tokens where rotated_from is not null);
