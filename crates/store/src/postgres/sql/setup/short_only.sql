-- Requires a release that reads compact definitions from now on, because they are being written.
-- Scans schema_steps, a small table.
update schema_steps set works_from = step where name = 'short' and works_from < step;
