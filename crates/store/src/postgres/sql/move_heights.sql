-- Lease fences go on above $1, partitions' above $2, audit rows behind the last. The cursors here were planned with the zone data
-- $3, whatever this database said before it had any. Keys: counters, partitions, audit.
with fences as (
    update counters set value = greatest(value, $1) where name = 'lease_fence'
), zones as (
    update counters set value = $3 where name = 'zone_data'
), shares as (
    update partitions set fence = greatest(fence, $2)
)
select setval(pg_get_serial_sequence('audit', 'id'), greatest((select max(id) from audit), 1), exists (select 1 from audit));
