-- Inserts version ?3 of secret ?2 of tenant ?1. ?4 key_id, ?5 wrapped_key, ?6 nonce, ?7 ciphertext. Primary key: secret_versions.
insert into secret_versions (tenant, name, version, key_id, wrapped_key, nonce, ciphertext) values (?1, ?2, ?3, ?4, ?5, ?6, ?7);
