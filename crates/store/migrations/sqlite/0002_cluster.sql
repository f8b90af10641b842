-- What a node says of itself, and the one partition that a file has.

alter table leases add column region text;
alter table leases add column version text not null default '';
alter table leases add column started_at integer not null default 0;
alter table leases add column renewed_at integer not null default 0;
alter table leases add column holds integer not null default 1;
alter table leases add column lag_ms integer not null default 0;
alter table leases add column clock_offset_ms integer not null default 0;

create table partitions (
    partition integer not null primary key,
    holder blob,
    fence integer not null default 0,
    since integer not null default 0
) strict;
insert into partitions (partition) values (0);

-- Late runs once more, by tenant: they are started tenant by tenant in turn. Runs on time are not in it.
create index waiting_late on waiting (tenant, priority desc, due_at, run) where late = 1;
