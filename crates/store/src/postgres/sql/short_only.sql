-- Short definitions are written from now on: the schema needs a release that reads them. Scans the few steps.
update schema_steps set works_from = step where name = 'short' and works_from < step;
