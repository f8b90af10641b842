-- Lists the living nodes that do not fill in references to secrets. Scans leases, a small table.
select node from leases where not ended and not fills_secrets order by node;
