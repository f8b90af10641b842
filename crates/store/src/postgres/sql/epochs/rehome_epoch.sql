-- Moves job $1 to partition $2, and notes the partition it leaves. Primary key: epochs. The caller has locked the job.
update epochs set moved_from = partition, partition = $2 where job = $1;
