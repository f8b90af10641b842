-- The incarnations whose claims may be under way. Scans leases, which are few.
select incarnation from leases where not ended order by incarnation;
