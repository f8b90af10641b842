-- Deletes operator key $1 if no value needs it. Primary key: keys. Index: secret_versions_key.
delete from keys where id = $1 and not exists (select 1 from secret_versions v where v.key_id = $1);
