-- Takes advisory lock $1: migrations and the creation of day tables run one at a time. The lock ends with the transaction.
select pg_advisory_xact_lock($1);
