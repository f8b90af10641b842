-- Lists the living nodes that check no tokens. Scans leases, a small table.
select node from leases where not ended and not checks_tokens order by node;
