-- Named sets of dates that schedules leave out, and the history of a job by its subject.

-- What edits of a calendar take turns at. Whoever makes or edits a job that names it holds the row too.
create table calendars (
    tenant integer not null,
    name text collate "C" not null,
    version bigint not null,
    created_at bigint not null,
    created_by text not null,
    updated_at bigint not null,
    primary key (tenant, name)
);

-- What a calendar says of the ticks after an instant; the newest few versions.
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
