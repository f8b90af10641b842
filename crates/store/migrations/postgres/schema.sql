-- What the migrations make. Written by the test that compares it; see tests/it/postgres/schema.rs.

table attempts
    run uuid not null
    attempt integer not null
    fence bigint not null
    node text
    started_at bigint
    finished_at bigint
    outcome text not null
    error text
    output text
    worker text
    constraint attempts_pkey PRIMARY KEY (run, attempt)

table audit
    id bigint not null generated always as identity
    tenant integer not null
    at bigint not null
    actor text not null
    action text not null
    subject text not null
    detail text not null
    actor_kind text
    token_id uuid
    ip text
    request_id text
    result text not null default 'ok'::text
    constraint audit_pkey PRIMARY KEY (id)
    CREATE INDEX audit_subject ON public.audit USING btree (tenant, subject, id)
    CREATE INDEX audit_tenant ON public.audit USING btree (tenant, id)

table backfill_runs
    run uuid not null
    backfill uuid not null
    constraint backfill_runs_pkey PRIMARY KEY (run)
    CREATE INDEX backfill_runs_of ON public.backfill_runs USING btree (backfill)

table backfills with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    id uuid not null
    tenant integer not null
    job uuid not null
    from_at bigint not null
    to_at bigint not null
    newest_first boolean not null
    rate_count integer
    rate_ms bigint
    spent_until bigint not null default 0
    payload text
    total integer not null
    position integer not null default 0
    succeeded integer not null default 0
    failed integer not null default 0
    cancelled integer not null default 0
    state smallint not null default 0
    active boolean not null default true
    created_at bigint not null
    created_by text not null
    finished_at bigint
    note text
    ticks bytea not null
    constraint backfills_finished CHECK (((state = 0) = (finished_at IS NULL)))
    constraint backfills_pkey PRIMARY KEY (id)
    constraint backfills_position CHECK (("position" <= total))
    constraint backfills_rate CHECK (((rate_count IS NULL) = (rate_ms IS NULL)))
    CREATE INDEX backfills_active ON public.backfills USING btree (job, id) WHERE active
    CREATE INDEX backfills_job ON public.backfills USING btree (job, id)
    CREATE INDEX backfills_over ON public.backfills USING btree (finished_at) WHERE (NOT active)

table backlog_work
    job uuid not null
    action smallint not null
    tenant integer not null
    up_to bigint not null
    done bigint not null default 0
    created_at bigint not null
    worked_at bigint not null
    actor text not null
    constraint backlog_work_action CHECK ((action = ANY (ARRAY[1, 2])))
    constraint backlog_work_pkey PRIMARY KEY (job, action)

table calendar_jobs
    tenant integer not null
    calendar text collate "C" not null
    job uuid not null
    constraint calendar_jobs_pkey PRIMARY KEY (tenant, calendar, job)
    CREATE INDEX calendar_jobs_job ON public.calendar_jobs USING btree (job)

table calendar_versions
    tenant integer not null
    name text collate "C" not null
    version bigint not null
    valid_from bigint not null
    spec text not null
    constraint calendar_versions_pkey PRIMARY KEY (tenant, name, version)

table calendars
    tenant integer not null
    name text collate "C" not null
    version bigint not null
    created_at bigint not null
    created_by text not null
    updated_at bigint not null
    constraint calendars_pkey PRIMARY KEY (tenant, name)

table counters with (fillfactor=50)
    name text not null
    value bigint not null
    constraint counters_pkey PRIMARY KEY (name)

table cursors with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0, fillfactor=100)
    job uuid not null
    tenant integer not null
    partition smallint not null
    next_tick bigint
    constraint cursors_pkey PRIMARY KEY (job)
    CREATE INDEX cursors_next ON public.cursors USING btree (partition, next_tick, job) WHERE (next_tick IS NOT NULL)

table epochs with (autovacuum_vacuum_scale_factor=0.05, fillfactor=100)
    job uuid not null
    tenant integer not null
    partition smallint not null
    epoch bigint not null
    seq bigint not null
    moved_from smallint
    queue text collate "C"
    guarded boolean not null default false
    zone_data bigint not null default 0
    constraint epochs_pkey PRIMARY KEY (job)
    CREATE INDEX epochs_queue ON public.epochs USING btree (tenant, queue) WHERE (queue IS NOT NULL)
    CREATE INDEX epochs_seq ON public.epochs USING btree (seq)

table failures
    tenant integer not null
    run uuid not null
    job uuid not null
    error_hash bigint
    constraint failures_pkey PRIMARY KEY (tenant, run)
    CREATE INDEX failures_job ON public.failures USING btree (job, run)

table flow_steps with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    run uuid not null
    flow uuid not null
    tenant integer not null
    constraint flow_steps_pkey PRIMARY KEY (run)
    CREATE INDEX flow_steps_flow ON public.flow_steps USING btree (flow)

table flows
    id uuid not null
    tenant integer not null
    opened_at bigint not null
    scheduled_at bigint not null
    rerun_of uuid
    cancelled_at bigint
    graph text not null
    constraint flows_pkey PRIMARY KEY (id)

table gone_nodes
    node text collate "C" not null
    region text
    version text not null
    can text
    started_at bigint not null
    renewed_at bigint not null
    constraint gone_nodes_pkey PRIMARY KEY (node)

table job_parents
    tenant integer not null
    child uuid not null
    parent uuid not null
    when_ended smallint not null
    constraint job_parents_pkey PRIMARY KEY (child, parent)
    CREATE INDEX job_parents_parent ON public.job_parents USING btree (parent)

table jobs
    id uuid not null
    tenant integer not null
    name text collate "C" not null
    version bigint not null
    created_at bigint not null
    created_by text not null
    updated_at bigint not null
    paused_at bigint
    pause_note text
    deleted_at bigint
    enabled boolean not null
    target text not null
    labels jsonb not null
    search text not null
    spec text not null
    constraint jobs_pkey PRIMARY KEY (id)
    CREATE INDEX jobs_deleted ON public.jobs USING btree (deleted_at) WHERE (deleted_at IS NOT NULL)
    CREATE UNIQUE INDEX jobs_name ON public.jobs USING btree (tenant, name) WHERE (deleted_at IS NULL)

table keys
    id text collate "C" not null
    check_value bytea not null
    created_at bigint not null
    constraint keys_pkey PRIMARY KEY (id)

table last_runs
    id uuid not null
    tenant integer not null
    cause smallint not null
    state smallint not null
    job uuid not null
    scheduled_at bigint not null
    due_at bigint not null
    fence bigint not null
    started_at bigint
    finished_at bigint
    attempt integer not null
    lost integer not null
    skip_reason smallint
    late boolean not null
    force boolean not null
    incarnation uuid
    node text
    error text
    output text
    payload text
    worker text
    flow uuid
    constraint last_runs_pkey PRIMARY KEY (job)
    constraint runs_claimed CHECK (((state = 1) = (incarnation IS NOT NULL)))
    constraint runs_due CHECK ((due_at >= scheduled_at))
    constraint runs_finished CHECK (((state >= 2) = (finished_at IS NOT NULL)))
    constraint runs_skipped CHECK (((state = 5) = (skip_reason IS NOT NULL)))
    CREATE UNIQUE INDEX last_runs_id ON public.last_runs USING btree (id)
    CREATE INDEX last_runs_tenant ON public.last_runs USING btree (tenant, id)

table leases with (fillfactor=20, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=200, autovacuum_vacuum_cost_delay=0)
    incarnation uuid not null
    node text not null
    fence bigint not null
    until bigint not null
    open_from uuid not null
    ended boolean not null
    region text
    version text not null
    started_at bigint not null
    renewed_at bigint not null
    holds boolean not null default true
    lag_ms bigint not null default 0
    clock_offset_ms bigint not null default 0
    reads_short boolean not null default false
    lists_claims boolean not null default false
    compared_to uuid
    host text
    pid bigint
    process text
    can text
    listen text
    ttl_ms bigint
    checks_tokens boolean not null default false
    fills_secrets boolean not null default false
    knows_tenants boolean not null default false
    constraint leases_pkey PRIMARY KEY (incarnation)

table open_claims with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    run uuid not null
    job uuid not null
    tenant integer not null
    incarnation uuid not null
    fence bigint not null
    constraint open_claims_pkey PRIMARY KEY (run)
    CREATE INDEX open_claims_incarnation ON public.open_claims USING btree (incarnation, run)
    CREATE INDEX open_claims_job ON public.open_claims USING btree (job)

table partitions with (fillfactor=30, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500)
    partition smallint not null
    holder uuid
    fence bigint not null
    since bigint not null
    home_region text
    constraint partitions_pkey PRIMARY KEY (partition)

table queue_asks
    tenant integer not null
    queue text collate "C" not null
    asked_at bigint not null
    worker text not null
    constraint queue_asks_pkey PRIMARY KEY (tenant, queue)
    CREATE INDEX queue_asks_asked ON public.queue_asks USING btree (asked_at)

table queues with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    tenant integer not null
    name text collate "C" not null
    concurrency integer
    rate_count integer
    rate_ms bigint
    spent_until bigint not null default 0
    constraint queues_pkey PRIMARY KEY (tenant, name)
    constraint queues_rate CHECK (((rate_count IS NULL) = (rate_ms IS NULL)))

table requests
    tenant integer not null
    key text not null
    fingerprint bytea not null
    kind text not null
    subject uuid not null
    created_at bigint not null
    constraint requests_pkey PRIMARY KEY (tenant, key)
    CREATE INDEX requests_created ON public.requests USING btree (created_at)

table runs partition by RANGE (id)
    id uuid not null
    tenant integer not null
    cause smallint not null
    state smallint not null
    job uuid not null
    scheduled_at bigint not null
    due_at bigint not null
    fence bigint not null
    started_at bigint
    finished_at bigint
    attempt integer not null
    lost integer not null
    skip_reason smallint
    late boolean not null
    force boolean not null
    incarnation uuid
    node text
    error text
    output text
    payload text
    worker text
    flow uuid
    constraint runs_claimed CHECK (((state = 1) = (incarnation IS NOT NULL)))
    constraint runs_due CHECK ((due_at >= scheduled_at))
    constraint runs_finished CHECK (((state >= 2) = (finished_at IS NOT NULL)))
    constraint runs_pkey PRIMARY KEY (id)
    constraint runs_skipped CHECK (((state = 5) = (skip_reason IS NOT NULL)))
    CREATE INDEX runs_history ON ONLY public.runs USING btree (job, id)

table schema_steps
    step integer not null
    name text not null
    works_from integer not null
    at timestamp with time zone not null default now()
    constraint schema_steps_pkey PRIMARY KEY (step)

table secret_jobs
    tenant integer not null
    secret text collate "C" not null
    job uuid not null
    constraint secret_jobs_pkey PRIMARY KEY (tenant, secret, job)
    CREATE INDEX secret_jobs_job ON public.secret_jobs USING btree (job)

table secret_versions
    tenant integer not null
    name text collate "C" not null
    version bigint not null
    key_id text collate "C" not null
    wrapped_key bytea not null
    nonce bytea not null
    ciphertext bytea not null
    constraint secret_versions_pkey PRIMARY KEY (tenant, name, version)
    CREATE INDEX secret_versions_key ON public.secret_versions USING btree (key_id)

table secrets
    tenant integer not null
    name text collate "C" not null
    version bigint not null
    hosts text not null
    kinds text not null
    description text not null
    created_at bigint not null
    created_by text not null
    updated_at bigint not null
    updated_by text not null
    previous_until bigint
    constraint secrets_pkey PRIMARY KEY (tenant, name)

table settings
    name text collate "C" not null
    value text not null
    constraint settings_pkey PRIMARY KEY (name)

table skip_ranges
    id uuid not null
    tenant integer not null
    job uuid not null
    from_tick bigint not null
    to_tick bigint not null
    count bigint not null
    reason smallint not null
    recorded_at bigint not null
    constraint skip_ranges_order CHECK ((to_tick >= from_tick))
    constraint skip_ranges_pkey PRIMARY KEY (id)
    CREATE INDEX skip_ranges_history ON public.skip_ranges USING btree (job, id)
    CREATE INDEX skip_ranges_tenant ON public.skip_ranges USING btree (tenant, id)

table tenant_jobs
    tenant integer not null
    job uuid not null
    constraint tenant_jobs_pkey PRIMARY KEY (tenant, job)

table tenants with (fillfactor=50)
    id integer not null
    name text not null
    jobs bigint not null default 0
    state text not null default 'active'::text
    work text
    quotas text not null default '{}'::text
    own_quotas text not null default '{}'::text
    egress text not null default '{}'::text
    own_egress text not null default '{}'::text
    shell boolean not null default false
    created_at bigint
    suspended_at bigint
    constraint tenants_name_key UNIQUE (name)
    constraint tenants_pkey PRIMARY KEY (id)
    CREATE UNIQUE INDEX tenants_name_key ON public.tenants USING btree (name)
    CREATE UNIQUE INDEX tenants_named ON public.tenants USING btree (name COLLATE "C")
    CREATE INDEX tenants_work ON public.tenants USING btree (id) WHERE (work IS NOT NULL)

table tokens
    hash bytea not null
    id uuid not null
    tenant integer
    name text not null
    prefix text not null
    role text not null
    scope text not null
    allowed_ips text not null
    created_at bigint not null
    created_by text not null
    expires_at bigint
    last_used_at bigint
    last_used_ip text
    revoked_at bigint
    rotated_from uuid
    constraint tokens_pkey PRIMARY KEY (hash)
    CREATE UNIQUE INDEX tokens_id ON public.tokens USING btree (id)
    CREATE INDEX tokens_tenant ON public.tokens USING btree (COALESCE(tenant, 0), id)

table unreadable
    relation text not null
    key text not null
    error text not null
    seen_at bigint not null
    constraint unreadable_pkey PRIMARY KEY (relation, key)
    CREATE INDEX unreadable_seen ON public.unreadable USING btree (seen_at)

table waiting with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=2000, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=5000, autovacuum_vacuum_cost_delay=0)
    run uuid not null
    job uuid not null
    tenant integer not null
    partition smallint not null
    priority smallint not null
    due_at bigint not null
    late boolean not null
    force boolean not null
    attempts integer not null
    queue text collate "C"
    rank bigint
    key text
    for_node uuid
    lot bigint not null default nextval('waiting_lots'::regclass)
    constraint waiting_pkey PRIMARY KEY (run)
    constraint waiting_priority CHECK (((priority >= 0) AND (priority <= 9)))
    constraint waiting_ranked CHECK (((queue IS NULL) = (rank IS NULL)))
    CREATE INDEX waiting_claim ON public.waiting USING btree (late, priority DESC, due_at, run) WHERE (queue IS NULL)
    CREATE INDEX waiting_due ON public.waiting USING btree (due_at) WHERE (COALESCE(queue, ''::text) = ''::text)
    CREATE INDEX waiting_for_node ON public.waiting USING btree (for_node, due_at) WHERE (for_node IS NOT NULL)
    CREATE INDEX waiting_job ON public.waiting USING btree (job)
    CREATE INDEX waiting_late ON public.waiting USING btree (tenant, priority DESC, due_at, run) WHERE (late AND (queue IS NULL))
    CREATE INDEX waiting_queue ON public.waiting USING btree (tenant, queue, rank, run) WHERE (queue IS NOT NULL)
    CREATE INDEX waiting_queue_due ON public.waiting USING btree (tenant, queue, due_at) WHERE (queue IS NOT NULL)
    CREATE INDEX waiting_tried ON public.waiting USING btree (job) WHERE (attempts > 0)

table worker_claims with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0)
    run uuid not null
    job uuid not null
    tenant integer not null
    queue text collate "C" not null
    worker text not null
    fence bigint not null
    until bigint not null
    timeout_at bigint not null
    key text
    log text
    previous boolean not null default false
    constraint worker_claims_pkey PRIMARY KEY (run)
    CREATE INDEX worker_claims_job ON public.worker_claims USING btree (job)
    CREATE INDEX worker_claims_previous ON public.worker_claims USING btree (job) WHERE previous
    CREATE INDEX worker_claims_queue ON public.worker_claims USING btree (tenant, queue)

CREATE OR REPLACE FUNCTION public.everytick_now()
 RETURNS bigint
 LANGUAGE sql
AS $function$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint $function$

sequence audit_id_seq

sequence changes_seq

sequence waiting_lots

a day with (fillfactor=45, autovacuum_vacuum_scale_factor=0.1, autovacuum_analyze_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.2, autovacuum_vacuum_cost_delay=0) 2 indexes
