-- Removes the nodes that have been gone since before $1. Scans gone_nodes, a small table.
delete from gone_nodes where renewed_at < $1;
