-- Step 11: API tokens, settings of the installation, and who did what from where in the audit trail.
create table settings (
    name text not null primary key,
    value text not null
) strict, without rowid;
-- "true" once a credential was configured: every request then needs one.
insert into settings (name, value) values ('auth_required', 'false');

-- Only hashes of tokens. `tenant` is null for the role `instance`. `scope` and `allowed_ips` are JSON.
create table tokens (
    hash blob not null primary key,
    id blob not null,
    tenant integer,
    name text not null,
    prefix text not null,
    role text not null,
    scope text not null,
    allowed_ips text not null,
    created_at integer not null,
    created_by text not null,
    expires_at integer,
    last_used_at integer,
    last_used_ip text,
    revoked_at integer,
    rotated_from blob
) strict, without rowid;
create unique index tokens_id on tokens (id);
create index tokens_tenant on tokens (coalesce(tenant, 0), id);

-- Rows of earlier releases have none of these: their actors are programs on the server's machine.
alter table audit add column actor_kind text;
alter table audit add column token_id blob;
alter table audit add column ip text;
alter table audit add column request_id text;
alter table audit add column result text not null default 'ok';
