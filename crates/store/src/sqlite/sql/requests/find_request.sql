-- Reads the request under idempotency key ?2 of tenant ?1, if it was made at or after ?3. Primary key: requests.
select fingerprint, kind, subject from requests where tenant = ?1 and key = ?2 and created_at >= ?3;
