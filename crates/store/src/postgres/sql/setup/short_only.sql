-- From now on, requires a release that reads compact definitions, because they are being written.
-- Scans schema_steps, a small table.
update schema_steps set works_from = step where name = 'short' and works_from < step;
