-- What was asked under the key $2 of tenant $1 since $3. Key: requests.
select fingerprint, kind, subject from requests where tenant = $1 and key = $2 and created_at >= $3;
