-- The next fence of a lease: past every one before, and past every one made before ?1 on a file since lost. Key: counters.
update counters set value = max(value + 1, ?1 * 1000) where name = 'lease_fence' returning value;
