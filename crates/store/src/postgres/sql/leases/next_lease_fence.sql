-- Takes the next lease fence: greatest(last + 1, microseconds of $1). Primary key: counters.
-- So it is above every earlier fence, also above those that a lost database issued before $1 (I9).
update counters set value = greatest(value + 1, $1::bigint * 1000) where name = 'lease_fence' returning value;
