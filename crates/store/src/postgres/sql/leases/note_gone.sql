-- Notes the node of the ended lease of incarnation $1 as gone. Primary keys: leases, gone_nodes. The last start of a name counts.
insert into gone_nodes (node, region, version, can, started_at, renewed_at)
select node, region, version, can, started_at, renewed_at from leases where incarnation = $1 and ended
on conflict (node) do update
   set region = excluded.region, version = excluded.version, can = excluded.can, started_at = excluded.started_at,
       renewed_at = excluded.renewed_at
 where gone_nodes.renewed_at <= excluded.renewed_at;
