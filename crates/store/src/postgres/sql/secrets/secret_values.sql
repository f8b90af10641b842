-- Reads the stored values of the secrets $2 of tenant $1, the newest first. Primary key: secret_versions.
select v.name, v.version, v.key_id, v.wrapped_key, v.nonce, v.ciphertext
  from secret_versions v
 where v.tenant = $1 and v.name = any($2)
 order by v.name, v.version desc;
