-- Notifies listening nodes that jobs were created or changed. Only a hint: the poll is authoritative if this is lost.
select pg_notify('everytick_jobs', '');
