-- Lists up to ?4 backfills of tenant ?1 with ids from ?2 to ?3, each with the name of its job. Primary keys: backfills, jobs.
select b.id, coalesce(j.name, '') as name
  from backfills b
  left join jobs j on j.id = b.job
 where b.id >= ?2 and b.id <= ?3 and b.tenant = ?1
 order by b.id
 limit ?4;
