-- Lists the jobs whose spec contains home_region, in order of id. Scans jobs, once per move.
select id, spec from jobs where spec like '%"home_region"%' order by id;
