-- Notifies every node, when this transaction commits, that tokens or settings have changed. No table is read.
select pg_notify('everytick_jobs', 'tokens');
