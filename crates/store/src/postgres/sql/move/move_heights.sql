-- Continues the numbers of the source, which must not decrease. Primary keys: counters, partitions, audit.
-- $1 lease fence, $2 partition fence, $3 zone data version. Audit ids continue after the last row.
-- zone_data is set, not raised: the cursors here were planned with the source's version, and this database had none before.
with fences as (
    update counters set value = greatest(value, $1) where name = 'lease_fence'
), zones as (
    update counters set value = $3 where name = 'zone_data'
), shares as (
    update partitions set fence = greatest(fence, $2)
)
select setval(pg_get_serial_sequence('audit', 'id'), greatest((select max(id) from audit), 1), exists (select 1 from audit));
