-- Where the installation goes. Made by the move and not by the schema's steps: it stands in files that nobody serves.
create table if not exists moved_to (
    one integer not null primary key check (one = 1),
    id blob not null,
    target text not null,
    started_at integer not null,
    finished_at integer
) strict;
