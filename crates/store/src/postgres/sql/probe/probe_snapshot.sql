-- Opens a snapshot and keeps it open, as a backup does: no timeout ends it.
begin isolation level repeatable read read only;
set local statement_timeout = 0;
set local idle_in_transaction_session_timeout = 0;
select count(*) from leases;
