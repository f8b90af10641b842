-- Reads setting $1. Primary key: settings.
select value from settings where name = $1;
