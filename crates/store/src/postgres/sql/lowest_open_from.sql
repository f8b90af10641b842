-- The lowest id that any lease may have claimed. Scans leases, which are few.
select open_from from leases order by open_from limit 1;
