-- Step 12: secrets by name. A value is stored encrypted; the keys of the operator are in files outside of the database.
create table secrets (
    tenant integer not null,
    name text not null,
    version integer not null,
    hosts text not null, -- a JSON array
    kinds text not null, -- a JSON array
    description text not null,
    created_at integer not null,
    created_by text not null,
    updated_at integer not null,
    updated_by text not null,
    previous_until integer, -- until when the previous version signs too
    primary key (tenant, name)
) strict, without rowid;

-- The newest two values of each secret. `wrapped_key` is the data key of the value, encrypted with the operator key `key_id`.
create table secret_versions (
    tenant integer not null,
    name text not null,
    version integer not null,
    key_id text not null,
    wrapped_key blob not null,
    nonce blob not null,
    ciphertext blob not null,
    primary key (tenant, name, version)
) strict, without rowid;
create index secret_versions_key on secret_versions (key_id);

-- Which live jobs refer to which secrets.
create table secret_jobs (
    tenant integer not null,
    secret text not null,
    job blob not null,
    primary key (tenant, secret, job)
) strict, without rowid;
create index secret_jobs_job on secret_jobs (job);

-- The operator keys with which data keys were encrypted. `check_value` shows whether a key file has the right key.
create table keys (
    id text not null primary key,
    check_value blob not null,
    created_at integer not null
) strict, without rowid;
