//! The panic hook of a node writes one line in the format of the log. A panic in the hook would abort the process, so the
//! hook only formats text and queues it. It bypasses the layers of the log, which may be the source of the panic.

use std::{backtrace::Backtrace, panic::PanicHookInfo, thread};

use everytick_store::{SystemClock, WallClock as _};

use super::{LogFormat, writer};

pub(super) fn install(format: LogFormat) {
    std::panic::set_hook(Box::new(move |info| writer::push(line(format, info).into_bytes())));
}

fn line(format: LogFormat, info: &PanicHookInfo<'_>) -> String {
    let what = info.payload_as_str().unwrap_or("unknown cause");
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = thread::current().name().unwrap_or("unnamed").to_owned();
    // Empty unless RUST_BACKTRACE is set.
    let backtrace = Some(Backtrace::capture().to_string()).filter(|text| text.contains('\n'));
    render(format, &SystemClock.now().to_string(), &thread, &location, what, backtrace.as_deref())
}

fn render(format: LogFormat, now: &str, thread: &str, location: &str, what: &str, backtrace: Option<&str>) -> String {
    let message = format!("thread {thread} panicked at {location}: {what}");
    match format {
        LogFormat::Text => {
            let backtrace = backtrace.map(|text| format!("\n{text}")).unwrap_or_default();
            format!("{now} ERROR {message}{backtrace}\n")
        }
        LogFormat::Json => {
            let line = serde_json::json!({
                "timestamp": now, "level": "ERROR", "message": message, "target": "panic", "backtrace": backtrace,
            });
            format!("{line}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line_with_its_source_location_in_both_formats() {
        let text = render(LogFormat::Text, "2026-11-18T00:00:00Z", "main", "a.rs:1:2", "no way on", None);
        assert_eq!(text, "2026-11-18T00:00:00Z ERROR thread main panicked at a.rs:1:2: no way on\n");
        let json = render(LogFormat::Json, "2026-11-18T00:00:00Z", "main", "a.rs:1:2", "a\nb", Some("1: x"));
        let json: serde_json::Value = serde_json::from_str(json.trim_end()).unwrap();
        assert_eq!(json["message"], "thread main panicked at a.rs:1:2: a\nb");
        assert_eq!(json["level"], "ERROR");
    }
}
