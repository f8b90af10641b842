-- Reads the settings of the role: timeouts in milliseconds, and whether commits are acknowledged before they are durable.
select (extract(epoch from current_setting('statement_timeout')::interval) * 1000)::bigint as statement_timeout,
       (extract(epoch from current_setting('lock_timeout')::interval) * 1000)::bigint as lock_timeout,
       (extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::bigint
           as idle_in_transaction_session_timeout,
       current_setting('synchronous_commit') = 'off' as commits_unsynced,
       current_setting('fsync') = 'off' as never_syncs;
