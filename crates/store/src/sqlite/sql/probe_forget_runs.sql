-- Ends a measurement. Nobody else has this file open.
delete from runs;
delete from waiting;
delete from attempts;
delete from skip_ranges;
delete from leases;
