-- What steps the schema has taken. That the table is there is no news.
set local client_min_messages = warning;
create table if not exists schema_steps (
    step integer primary key,
    name text not null,
    works_from integer not null,
    at timestamptz not null default now()
);
