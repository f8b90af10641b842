-- Step 11: secrets by name. A value is stored encrypted; the keys of the operator are in files outside of the database. A
-- node of an earlier release would send references unchanged. So the first secret is refused while such a node is alive, and
-- after the first secret such a node cannot start.
create table secrets (
    tenant integer not null,
    name text collate "C" not null,
    version bigint not null,
    hosts text not null, -- a JSON array
    kinds text not null, -- a JSON array
    description text not null,
    created_at bigint not null,
    created_by text not null,
    updated_at bigint not null,
    updated_by text not null,
    previous_until bigint, -- until when deliveries are also signed with the previous version
    primary key (tenant, name)
);

-- The newest two values of each secret. `wrapped_key` is the data key of the value, encrypted with the operator key `key_id`.
create table secret_versions (
    tenant integer not null,
    name text collate "C" not null,
    version bigint not null,
    key_id text collate "C" not null,
    wrapped_key bytea not null,
    nonce bytea not null,
    ciphertext bytea not null,
    primary key (tenant, name, version)
);
create index secret_versions_key on secret_versions (key_id);

-- Which live jobs refer to which secrets.
create table secret_jobs (
    tenant integer not null,
    secret text collate "C" not null,
    job uuid not null,
    primary key (tenant, secret, job)
);
create index secret_jobs_job on secret_jobs (job);

-- The operator keys with which data keys were encrypted. `check_value` shows whether a key file has the right key.
create table keys (
    id text collate "C" not null primary key,
    check_value bytea not null,
    created_at bigint not null
);

-- Whether the node fills in references to secrets. False for nodes of earlier releases.
alter table leases add column fills_secrets boolean not null default false;
