-- Ends a benchmark: removes all runs and leases. The benchmark has a schema of its own.
truncate runs, waiting, attempts, skip_ranges, last_runs, leases;
update partitions set holder = null;
