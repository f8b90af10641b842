-- Requires a release that fills in references to secrets from now on, if there is a secret. Scans schema_steps, a small table.
-- Primary key: secrets.
update schema_steps set works_from = step
 where name = 'secrets' and works_from < step and exists (select 1 from secrets where tenant >= 0);
