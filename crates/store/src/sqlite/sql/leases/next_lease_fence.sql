-- Takes the next lease fence: max(last + 1, microseconds of ?1). Primary key: counters.
-- So it is above every earlier fence, also above those that a lost file issued before ?1 (I9).
update counters set value = max(value + 1, ?1 * 1000) where name = 'lease_fence' returning value;
