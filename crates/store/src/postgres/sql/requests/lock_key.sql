-- Locks idempotency key $2 of tenant $1 until this transaction ends: two requests under one key run one after the other.
select pg_advisory_xact_lock(hashtextextended($2, $1));
