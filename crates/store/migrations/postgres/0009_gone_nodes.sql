-- Step 9: nodes that ended during the last day. A lease is removed once its claims are settled, so it cannot tell which nodes
-- there were. One row per node name. A node of an earlier release removes a lease without a row here.
create table gone_nodes (
    node text collate "C" not null primary key,
    region text,
    version text not null,
    can text,
    started_at bigint not null,
    renewed_at bigint not null
);
