-- Tells whoever listens that jobs were made or changed. Only a hint: the poll carries it where this is lost.
select pg_notify('everytick_jobs', '');
