-- Reads the clock, and the oldest transaction that may still be open: every transaction with a lower id has ended.
select everytick_now() as now, pg_snapshot_xmin(pg_current_snapshot())::xid::text as over;
