-- Takes ?1 change numbers and returns the last of them. Primary key: counters.
update counters set value = value + ?1 where name = 'change' returning value;
