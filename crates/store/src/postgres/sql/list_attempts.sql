-- The attempts at run $1 that ended without ending it. Key: attempts.
select * from attempts where run = $1 order by attempt;
