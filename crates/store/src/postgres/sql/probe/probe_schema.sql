-- Reads the schema that this session uses.
select current_schema()::text;
