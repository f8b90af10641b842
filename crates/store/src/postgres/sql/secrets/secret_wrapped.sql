-- Lists up to $5 values that another key than $1 encrypts, after value ($2, $3, $4), by tenant, name and version.
-- Primary key: secret_versions.
select tenant, name, version, key_id, wrapped_key, nonce, ciphertext
  from secret_versions
 where (tenant, name, version) > ($2, $3, $4) and key_id <> $1
 order by tenant, name, version
 limit $5;
