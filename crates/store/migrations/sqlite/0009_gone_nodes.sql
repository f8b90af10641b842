-- Step 9: nodes that ended during the last day. A lease is removed once its claims are settled, so it cannot tell which nodes
-- there were. One row per node name.
create table gone_nodes (
    node text not null primary key,
    region text,
    version text not null,
    can text,
    started_at integer not null,
    renewed_at integer not null
) strict, without rowid;
