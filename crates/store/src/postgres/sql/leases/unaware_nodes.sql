-- Lists the living nodes that know no tenants. Scans leases, a small table.
select node from leases where not ended and not knows_tenants order by node;
