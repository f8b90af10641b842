-- Reads the lowest open_from of all leases: claims on runs with lower ids are in open_claims. Scans leases, a small table.
select open_from from leases order by open_from limit 1;
