-- The time-outs that the role brings along, in milliseconds.
select (extract(epoch from current_setting('statement_timeout')::interval) * 1000)::bigint as statement_timeout,
       (extract(epoch from current_setting('lock_timeout')::interval) * 1000)::bigint as lock_timeout,
       (extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::bigint
           as idle_in_transaction_session_timeout;
