-- Named sets of dates that schedules leave out, and the history of a job by its subject.

create table calendars (
    tenant integer not null,
    name text not null,
    version integer not null,
    created_at integer not null,
    created_by text not null,
    updated_at integer not null,
    primary key (tenant, name)
) strict, without rowid;

-- What a calendar says of the ticks after an instant; the newest few versions.
create table calendar_versions (
    tenant integer not null,
    name text not null,
    version integer not null,
    valid_from integer not null,
    spec text not null,
    primary key (tenant, name, version)
) strict, without rowid;

-- Which live jobs name which calendars.
create table calendar_jobs (
    tenant integer not null,
    calendar text not null,
    job blob not null,
    primary key (tenant, calendar, job)
) strict, without rowid;
create index calendar_jobs_job on calendar_jobs (job);

create index audit_subject on audit (tenant, subject, id);
