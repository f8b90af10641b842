-- The next fence of a lease: past every one before, and past every one made before $1 on a database since lost. Key: counters.
update counters set value = greatest(value + 1, $1::bigint * 1000) where name = 'lease_fence' returning value;
