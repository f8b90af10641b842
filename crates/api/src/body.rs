//! Reads a request's body: checks its media type, size and depth, parses its JSON, and reads the Idempotency-Key.

use axum::{
    body::Body,
    extract::{FromRequest, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use everytick_domain::wrong_input::json_syntax;
use everytick_engine::types::IdempotencyKey;
use everytick_targets::object::Object;
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, error::Category, value::RawValue};
use serde_path_to_error::Path;
use utoipa::ToSchema;

use crate::{
    accepts::BodySchema,
    error::{ApiError, Result},
    idempotency,
    in_flight::{Charge, InFlight},
    wire::job::JobPatch,
};

pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// The limit of serde_json. serde_json does not check it for raw text, and a payload is stored as raw text: without a check here,
/// parsing the stored payload would fail later.
pub(crate) const JSON_DEPTH_MAX: usize = 127;

/// The forms of this server have a few short fields.
const FORM_BYTES_MAX: usize = 16 * 1024;
const FORM: &str = "application/x-www-form-urlencoded";
const CALENDAR: &str = "text/calendar";
const JSON: [&str; 2] = ["application/json", "application/merge-patch+json"];

/// A JSON body, which may be empty.
pub(crate) struct JsonBody {
    bytes: Bytes,
    /// Counts the bytes until the request has been answered.
    _charge: Charge,
    pub(crate) idempotency: Option<IdempotencyKey>,
}

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let (parts, body) = request.into_parts();
        let (bytes, charge) = read_whole(&parts, body).await?;
        if !bytes.is_empty() {
            check_media_type(&parts.headers, &JSON)?;
        }
        let idempotency = idempotency::read(&parts, &bytes)?;
        Ok(Self { bytes, _charge: charge, idempotency })
    }
}

/// A calendar as JSON, or as an iCalendar file.
pub(crate) enum CalendarBody {
    Json(JsonBody),
    Ics(String),
}

impl<S: Sync> FromRequest<S> for CalendarBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let (parts, body) = request.into_parts();
        let (bytes, charge) = read_whole(&parts, body).await?;
        if check_media_type(&parts.headers, &[CALENDAR]).is_ok() {
            let text =
                String::from_utf8(bytes.to_vec()).map_err(|_| ApiError::malformed("", "the body is not UTF-8"))?;
            return Ok(Self::Ics(text));
        }
        if !bytes.is_empty() {
            check_media_type(&parts.headers, &[JSON[0], CALENDAR])?;
        }
        Ok(Self::Json(JsonBody { bytes, _charge: charge, idempotency: None }))
    }
}

/// The fields of an HTML form.
pub(crate) struct FormBody(Vec<(String, String)>);

impl<S: Sync> FromRequest<S> for FormBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let (parts, body) = request.into_parts();
        check_announced(&parts.headers, FORM_BYTES_MAX)?;
        check_media_type(&parts.headers, &[FORM])?;
        let (bytes, _charge) = read_whole(&parts, body).await?;
        Ok(Self(form_urlencoded::parse(&bytes).into_owned().collect()))
    }
}

impl FormBody {
    /// The first value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl JsonBody {
    pub(crate) fn read<T: DeserializeOwned + ToSchema>(&self) -> Result<T> {
        read_object(self.present()?)
    }

    pub(crate) fn read_or_default<T: DeserializeOwned + Default + ToSchema>(&self) -> Result<T> {
        if self.bytes.is_empty() {
            return Ok(T::default());
        }
        Ok(read_json::<Option<Object<T>>>(&self.bytes, BodySchema::of::<T>)?.map_or_else(T::default, |object| object.0))
    }

    /// The raw JSON text of the body.
    pub(crate) fn read_raw(&self) -> Result<Box<RawValue>> {
        read_json(self.present()?, BodySchema::of::<JobPatch>)
    }

    fn present(&self) -> Result<&[u8]> {
        if self.bytes.is_empty() {
            return Err(ApiError::malformed("", "the body is empty; send a JSON object"));
        }
        Ok(&self.bytes)
    }
}

pub(crate) fn read_object<T: DeserializeOwned + ToSchema>(bytes: &[u8]) -> Result<T> {
    Ok(read_json::<Object<T>>(bytes, BodySchema::of::<T>)?.0)
}

/// A syntax error is `Malformed`. A wrong type or an unknown field is `Invalid` and reported under its path.
fn read_json<T: DeserializeOwned>(bytes: &[u8], schema: fn() -> BodySchema) -> Result<T> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| ApiError::malformed("", "the body is not UTF-8; send the JSON in UTF-8"))?;
    if deeper_than(text, JSON_DEPTH_MAX) {
        let message = format!("the JSON is nested deeper than {JSON_DEPTH_MAX} levels; use fewer");
        return Err(ApiError::malformed("", message));
    }
    // Tracking the path doubles the cost of parsing, so only a body that fails is parsed again with it.
    if let Ok(read) = serde_json::from_str(text) {
        return Ok(read);
    }
    let mut from = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut from)
        .map_err(|error| refused(error.path(), error.inner(), text, schema))?;
    from.end().map_err(|error| not_json(&error))?;
    Ok(read)
}

fn refused(path: &Path, error: &serde_json::Error, text: &str, schema: fn() -> BodySchema) -> ApiError {
    match (error.classify(), serde_json::from_str::<Value>(text)) {
        (Category::Data, Ok(body)) => {
            let message = error.to_string();
            // The field is named, so remove serde's "at line 1 column 17".
            let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
            ApiError::Invalid(vec![schema().explain(path, message, &body)])
        }
        // A syntax error is reported first, even if the wrong value precedes it in the text.
        (Category::Data, Err(error)) => not_json(&error),
        (Category::Syntax | Category::Eof | Category::Io, _) => not_json(error),
    }
}

fn not_json(error: &serde_json::Error) -> ApiError {
    ApiError::malformed("", format!("the body is not JSON: {}", json_syntax(&error.to_string())))
}

fn deeper_than(text: &str, levels: usize) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                if depth > levels {
                    return true;
                }
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

pub(crate) fn check_media_type(headers: &HeaderMap, wanted: &[&str]) -> Result<()> {
    let wrong =
        |found: &str| ApiError::WrongMediaType(format!("{found} is not supported here; send {}", wanted.join(" or ")));
    let value = headers.get(header::CONTENT_TYPE).ok_or_else(|| wrong("a body without Content-Type"))?;
    let text = value.to_str().map_err(|_| wrong("a Content-Type that is not ASCII"))?;
    let mut parts = text.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let utf8 = parts.all(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        !name.eq_ignore_ascii_case("charset") || value.trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    if utf8 && wanted.iter().any(|known| known.eq_ignore_ascii_case(essence)) {
        Ok(())
    } else {
        Err(wrong(&format!("{text:?}")))
    }
}

/// Refuses a body by its `Content-Length`, before it is read.
pub(crate) fn check_announced(headers: &HeaderMap, bytes_max: usize) -> Result<()> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Err(ApiError::TooLarge { field: "body", bytes_max });
    }
    Ok(())
}

async fn read_whole(parts: &Parts, body: Body) -> Result<(Bytes, Charge)> {
    check_announced(&parts.headers, BODY_BYTES_MAX)?;
    // Count received bytes, not announced ones: a client could announce any length at no cost.
    let mut charge = parts.extensions.get::<InFlight>().cloned().unwrap_or_default().begin();
    let mut chunks = body.into_data_stream();
    let mut whole = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| ApiError::malformed("", "the body ended early"))?;
        if whole.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(ApiError::TooLarge { field: "body", bytes_max: BODY_BYTES_MAX });
        }
        charge.grow_to(whole.len() + chunk.len())?;
        whole.extend_from_slice(&chunk);
    }
    Ok((whole.freeze(), charge))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        assert!(deeper_than("[[[]]]", 2));
        assert!(!deeper_than("[[],[],{\"[[[\\\"[[\":1}]", 2));
    }
}
