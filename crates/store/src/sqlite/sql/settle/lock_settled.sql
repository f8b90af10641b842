-- Lists those of the runs that are still claimed (state 1) under their fence. ?1 JSON array of [run, fence]. Primary key: runs.
select s.key
  from json_each(?1) as s
 cross join runs r on r.id = unhex(s.value ->> 0) and r.state = 1 and r.fence = s.value ->> 1;
