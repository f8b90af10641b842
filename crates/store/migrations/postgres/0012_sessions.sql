-- Step 12: sessions of browsers. A node of an earlier release ignores their cookie and answers 401.
-- Only hashes. `token` is the hash of the token of the login: the session ends with it. `grants` is JSON. `tenant` is the
-- name of the tenant that the user has chosen.
create table sessions (
    hash bytea not null primary key,
    id uuid not null,
    user_name text collate "C" not null,
    token bytea,
    grants text not null,
    tenant text,
    created_at bigint not null,
    seen_at bigint not null,
    expires_at bigint not null,
    ip text
);
create unique index sessions_id on sessions (id);
create index sessions_user on sessions (user_name);
