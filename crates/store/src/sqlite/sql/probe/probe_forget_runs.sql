-- Ends a benchmark: removes all runs and leases. The benchmark has a file of its own.
delete from runs;
delete from waiting;
delete from attempts;
delete from skip_ranges;
delete from leases;
