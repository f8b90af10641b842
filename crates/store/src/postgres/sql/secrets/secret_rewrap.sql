-- Replaces the data key of version $3 of secret $2 of tenant $1, if key $4 still encrypts it: $5 key_id, $6 wrapped_key.
-- Primary key: secret_versions.
update secret_versions set key_id = $5, wrapped_key = $6 where tenant = $1 and name = $2 and version = $3 and key_id = $4;
