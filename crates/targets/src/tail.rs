//! Keeps the end of an output and counts the missing bytes. The limit also applies to the text after replacements.

use std::borrow::Cow;

pub use everytick_domain::output::OUTPUT_TAIL_BYTES_MAX;
use everytick_domain::output::keep;

#[derive(Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    /// The number of dropped bytes before `bytes`.
    missing: u64,
}

impl Tail {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let (dropped, chunk) = chunk.split_at(chunk.len().saturating_sub(OUTPUT_TAIL_BYTES_MAX));
        if !dropped.is_empty() {
            self.missing += (self.bytes.len() + dropped.len()) as u64;
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(chunk);
        // Cut only when twice the limit has accumulated, so that many small chunks do not move the bytes each time.
        if self.bytes.len() > 2 * OUTPUT_TAIL_BYTES_MAX {
            self.missing += (self.bytes.len() - OUTPUT_TAIL_BYTES_MAX) as u64;
            self.bytes.drain(..self.bytes.len() - OUTPUT_TAIL_BYTES_MAX);
        }
    }

    /// The tail as text; `None` when the output is empty. NUL is replaced like invalid UTF-8, because PostgreSQL's `text`
    /// refuses it.
    pub(crate) fn into_text(self) -> Option<String> {
        if self.bytes.is_empty() {
            return None;
        }
        let cut = self.bytes.len().saturating_sub(OUTPUT_TAIL_BYTES_MAX);
        let end = &self.bytes[cut..];
        // If our limit cuts a character, drop its remaining bytes. They are not replaced, because the output was valid.
        let is_cut = cut > 0 || self.missing > 0;
        let rest = if is_cut { end.iter().take(3).take_while(|byte| is_continuation(**byte)).count() } else { 0 };
        let text = match String::from_utf8_lossy(&end[rest..]) {
            text if text.contains('\0') => Cow::Owned(text.replace('\0', "\u{fffd}")),
            text => text,
        };
        // A replacement turns one byte into three, so the text may be cut again.
        Some(keep(&text, self.missing + (cut + rest) as u64))
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use everytick_domain::output::split;

    use super::*;

    fn text_of(chunks: &[&[u8]]) -> Option<String> {
        let mut tail = Tail::default();
        chunks.iter().for_each(|chunk| tail.push(chunk));
        tail.into_text()
    }

    #[test]
    fn an_empty_output_is_none() {
        assert_eq!(text_of(&[]), None);
        assert_eq!(text_of(&[b""]), None);
    }

    #[test]
    fn the_end_is_kept_for_every_chunk_size() {
        let whole: Vec<u8> = (0..40_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        for size in [1, 7, 4_096, 65_536, 65_537, whole.len()] {
            let chunks: Vec<&[u8]> = whole.chunks(size).collect();
            let kept = text_of(&chunks).unwrap();
            let (missing, end) = split(&kept);
            assert!(kept.len() <= OUTPUT_TAIL_BYTES_MAX && whole.ends_with(end.as_bytes()), "in chunks of {size}");
            assert_eq!(missing as usize + end.len(), whole.len(), "in chunks of {size}");
        }
    }

    #[test]
    fn a_character_cut_by_the_limit_is_dropped_and_counted() {
        let text = "é".repeat(OUTPUT_TAIL_BYTES_MAX) + "x";
        let kept = text_of(&[text.as_bytes()]).unwrap();
        let (missing, end) = split(&kept);
        assert!(end.starts_with('é') && end.ends_with("éx") && missing as usize + end.len() == text.len());
    }

    #[test]
    fn invalid_bytes_are_replaced_within_the_limit() {
        assert_eq!(text_of(&[b"a\xffb\0c"]).as_deref(), Some("a\u{fffd}b\u{fffd}c"));
        let kept = text_of(&[&[0xff; OUTPUT_TAIL_BYTES_MAX]]).unwrap();
        assert!(kept.len() <= OUTPUT_TAIL_BYTES_MAX && split(&kept).0 > 0);
    }
}
