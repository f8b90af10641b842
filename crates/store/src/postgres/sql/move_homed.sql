-- Jobs that may call a region home, in order. Scans jobs, once.
select id, spec from jobs where spec like '%"home_region"%' order by id;
