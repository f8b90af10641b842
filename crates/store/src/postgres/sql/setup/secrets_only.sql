-- If there is a secret, requires from now on a release that fills in references to secrets. Scans schema_steps, a small table.
-- Primary key: secrets.
update schema_steps set works_from = step
 where name = 'secrets' and works_from < step and exists (select 1 from secrets where tenant >= 0);
