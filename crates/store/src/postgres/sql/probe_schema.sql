-- Where this session works.
select current_schema()::text;
