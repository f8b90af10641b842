-- Creates the tables that record a move into this database and its progress.
-- A move creates them, not a migration: other databases have none, and a node reads them only when it connects.
create table if not exists moves (
    id uuid primary key,
    source text not null,
    -- Runs with ids below this have no day table.
    days_from uuid not null,
    started_at bigint not null,
    finished_at bigint
);
create table if not exists move_parts (
    move uuid not null references moves (id),
    part text not null,
    -- The key of the last row that was moved, as JSON.
    place text,
    moved bigint not null default 0,
    done boolean not null default false,
    primary key (move, part)
);
