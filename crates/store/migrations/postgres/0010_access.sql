-- Step 10: API tokens, settings of the installation, and the origin of each request in the audit trail. A node of an earlier
-- release checks no tokens. So the first token is refused while such a node is alive, and after the first token such a node
-- cannot start.
create table settings (
    name text collate "C" not null primary key,
    value text not null
);
-- "true" once a credential was configured: every request then needs one.
insert into settings (name, value) values ('auth_required', 'false');

-- Only hashes of tokens. `tenant` is null for the role `instance`. `scope` and `allowed_ips` are JSON.
create table tokens (
    hash bytea not null primary key,
    id uuid not null,
    tenant integer,
    name text not null,
    prefix text not null,
    role text not null,
    scope text not null,
    allowed_ips text not null,
    created_at bigint not null,
    created_by text not null,
    expires_at bigint,
    last_used_at bigint,
    last_used_ip text,
    revoked_at bigint,
    rotated_from uuid
);
create unique index tokens_id on tokens (id);
create index tokens_tenant on tokens (coalesce(tenant, 0), id);

-- The first four columns are null in rows of earlier releases, whose actors are programs on the server's machine.
alter table audit add column actor_kind text;
alter table audit add column token_id uuid;
alter table audit add column ip text;
alter table audit add column request_id text;
alter table audit add column result text not null default 'ok';

-- Whether the node checks tokens. False for nodes of earlier releases.
alter table leases add column checks_tokens boolean not null default false;
