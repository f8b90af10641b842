-- Removes the audit rows older than $1 among the oldest $2, and returns how many. Primary key: audit.
-- The function refuses rows of the last 30 days, except for the owner.
select everytick_prune_audit($1, $2);
