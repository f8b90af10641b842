-- Step 9: nodes that ended during the last day, one row per node name. A lease is removed once its claims are settled, so leases do
-- not show the nodes of the past. A node of an earlier release removes a lease without inserting a row here.
create table gone_nodes (
    node text collate "C" not null primary key,
    region text,
    version text not null,
    can text,
    started_at bigint not null,
    renewed_at bigint not null
);
