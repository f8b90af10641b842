-- Step 13: sessions of browsers. A node of an earlier release ignores their cookie and answers 401.
-- Only hashes. `token` is the hash of the token of the login: the session ends with it. `grants` is JSON. `tenant` is the
-- name of the tenant that the user has chosen.
create table sessions (
    hash blob not null primary key,
    id blob not null,
    user_name text not null,
    token blob,
    grants text not null,
    tenant text,
    created_at integer not null,
    seen_at integer not null,
    expires_at integer not null,
    ip text
) strict, without rowid;
create unique index sessions_id on sessions (id);
create index sessions_user on sessions (user_name);
