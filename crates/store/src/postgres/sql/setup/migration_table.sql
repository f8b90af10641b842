-- Creates the table of schema steps if it is missing. The setting hides the notice that the table exists.
set local client_min_messages = warning;
create table if not exists schema_steps (
    step integer primary key,
    name text not null,
    works_from integer not null,
    at timestamptz not null default now()
);
