-- Lists the incarnations that may have claims in flight. Scans leases, a small table.
select incarnation from leases where not ended order by incarnation;
