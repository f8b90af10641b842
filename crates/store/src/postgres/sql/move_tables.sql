-- What came into this database from elsewhere, and how far it has come. Made by a move and not by the schema's steps: no
-- other database has it, and no node but the one that connects asks for it.
create table if not exists moves (
    id uuid primary key,
    source text not null,
    -- Runs before this id have no day.
    days_from uuid not null,
    started_at bigint not null,
    finished_at bigint
);
create table if not exists move_parts (
    move uuid not null references moves (id),
    part text not null,
    -- The key of the last row that is here.
    place text,
    moved bigint not null default 0,
    done boolean not null default false,
    primary key (move, part)
);
