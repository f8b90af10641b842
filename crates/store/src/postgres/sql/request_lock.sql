-- Two requests under one key take turns until this transaction ends.
select pg_advisory_xact_lock(hashtextextended($2, $1));
