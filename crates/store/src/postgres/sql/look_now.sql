-- What time it is, and the first transaction that this snapshot may not see whole: all before it are over.
select everytick_now() as now, pg_snapshot_xmin(pg_current_snapshot())::xid::text as over;
