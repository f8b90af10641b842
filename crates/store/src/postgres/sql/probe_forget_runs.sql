-- Ends a measurement. Nobody else is in this schema.
truncate runs, waiting, attempts, skip_ranges, last_runs, leases;
update partitions set holder = null;
