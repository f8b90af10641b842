//! `Idempotency-Key`: a repeated request with the same key is executed once and gets the answer of the first.
//! Requests are the same when method, path and body are equal. The store keeps keys for one day.

use axum::http::request::Parts;
use everytick_engine::types::IdempotencyKey;

use crate::error::{ApiError, Result};

pub(crate) const HEADER: &str = "idempotency-key";
pub(crate) const KEY_BYTES_MAX: usize = 255;

pub(crate) fn read(parts: &Parts, body: &[u8]) -> Result<Option<IdempotencyKey>> {
    let mut values = parts.headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = |what: &str| Err(ApiError::malformed("Idempotency-Key", what));
    if values.next().is_some() {
        return wrong("occurs more than once");
    }
    match value.to_str() {
        Ok(key) if (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(IdempotencyKey { key: key.to_owned(), fingerprint: fingerprint(parts, body) }))
        }
        _ => wrong("is not a key; write 1 to 255 visible ASCII characters, such as a UUID"),
    }
}

fn fingerprint(parts: &Parts, body: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for part in [parts.method.as_str().as_bytes(), parts.uri.path().as_bytes()] {
        hasher.update(part).update(&[0]);
    }
    *hasher.update(body).finalize().as_bytes()
}
