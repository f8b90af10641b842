-- The nodes that live here. Scans leases, which are few.
select node from leases where not ended and until > everytick_now() order by node;
