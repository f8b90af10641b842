-- Which of the runs [id, fence] in ?1 are still claimed under that fence. Key: runs.
select s.key
  from json_each(?1) as s
 cross join runs r on r.id = unhex(s.value ->> 0) and r.state = 1 and r.fence = s.value ->> 1;
