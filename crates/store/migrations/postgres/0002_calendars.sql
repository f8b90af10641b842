-- Named sets of dates that schedules exclude, and the index of the audit trail by subject.

-- The row's lock serializes edits of the calendar. A transaction that creates or edits a job that names the calendar locks it too.
create table calendars (
    tenant integer not null,
    name text collate "C" not null,
    version bigint not null,
    created_at bigint not null,
    created_by text not null,
    updated_at bigint not null,
    primary key (tenant, name)
);

-- The newest few versions of each calendar. A version applies to ticks after `valid_from`.
create table calendar_versions (
    tenant integer not null,
    name text collate "C" not null,
    version bigint not null,
    valid_from bigint not null,
    spec text not null,
    primary key (tenant, name, version)
);

-- Which live jobs name which calendars.
create table calendar_jobs (
    tenant integer not null,
    calendar text collate "C" not null,
    job uuid not null,
    primary key (tenant, calendar, job)
);
create index calendar_jobs_job on calendar_jobs (job);

create index audit_subject on audit (tenant, subject, id);
