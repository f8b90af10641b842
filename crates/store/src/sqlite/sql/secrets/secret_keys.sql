-- Lists the operator keys, and whether a value needs them. Scans keys, a small table. Index: secret_versions_key.
select k.id, k.check_value, k.created_at, exists (select 1 from secret_versions v where v.key_id = k.id) as needed
  from keys k
 order by k.id;
