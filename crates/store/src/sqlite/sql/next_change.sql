-- Takes ?1 numbers of changes and gives the last of them. Key: counters.
update counters set value = value + ?1 where name = 'change' returning value;
