-- Creates the table that says where the installation moves to. The move creates it, not a migration: files that are in use have
-- none.
create table if not exists moved_to (
    one integer not null primary key check (one = 1),
    id blob not null,
    target text not null,
    started_at integer not null,
    finished_at integer
) strict;
