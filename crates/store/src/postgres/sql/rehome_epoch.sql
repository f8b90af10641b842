-- Job $1, which is held, stands in partition $2. Key: epochs.
update epochs set moved_from = partition, partition = $2 where job = $1;
