-- Reads the last ?3 skip ranges of job ?1 that begin before id ?2. Index: skip_ranges_history, backwards.
select from_tick, to_tick
  from skip_ranges indexed by skip_ranges_history
 where job = ?1 and id < ?2
 order by id desc
 limit ?3;
