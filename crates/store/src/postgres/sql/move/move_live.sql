-- Lists the nodes with a living lease in this database. Scans leases, a small table.
select node from leases where not ended and until > everytick_now() order by node;
