//! Replaces secrets in a stream. The result does not depend on how the stream is cut into chunks. Bytes that may begin a
//! secret are kept back until the next bytes decide.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::{SCRUBBED_BYTES_MIN, forms::Forms};

/// The text that replaces a secret.
pub const MASK: &str = "********";

/// One stream of bytes.
#[derive(Clone, Debug)]
pub struct Scrubber {
    forms: Arc<Forms>,
    /// The end of the stream so far, if it may begin a secret.
    kept: Zeroizing<Vec<u8>>,
    /// How many of the next bytes belong to a secret that was found.
    covered: usize,
    /// Whether the last byte was part of a secret. A secret that follows directly has no mask of its own.
    masked: bool,
}

impl Scrubber {
    #[must_use]
    pub fn new(forms: Arc<Forms>) -> Self {
        Self { forms, kept: Zeroizing::default(), covered: 0, masked: false }
    }

    /// A whole text without its secrets.
    #[must_use]
    pub fn scrub(forms: &Arc<Forms>, text: &str) -> String {
        if forms.is_empty() {
            return text.to_owned();
        }
        let mut scrubber = Self::new(Arc::clone(forms));
        let mut bytes = scrubber.push(text.as_bytes());
        bytes.extend(scrubber.finish());
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Takes the next bytes of the stream, and returns those that are known to be free of secrets.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        if self.forms.is_empty() {
            return chunk.to_vec();
        }
        let mut text = std::mem::take(&mut self.kept);
        text.extend_from_slice(chunk);
        self.pass(&text, false)
    }

    /// The rest of the stream. A secret that the end cuts off is replaced too if its first [`SCRUBBED_BYTES_MIN`] bytes are
    /// present.
    pub fn finish(&mut self) -> Vec<u8> {
        let text = std::mem::take(&mut self.kept);
        self.pass(&text, true)
    }

    fn pass(&mut self, text: &[u8], ended: bool) -> Vec<u8> {
        let mut clean = Vec::with_capacity(text.len());
        for at in 0..text.len() {
            let rest = &text[at..];
            if self.forms.begins.get(usize::from(rest[0])).copied().unwrap_or(false) {
                if !ended && self.forms.continues(rest) {
                    self.kept = Zeroizing::new(rest.to_vec());
                    return clean;
                }
                let cut_off = ended && rest.len() >= SCRUBBED_BYTES_MIN && self.forms.continues(rest);
                let found = if cut_off { rest.len() } else { self.forms.at_start_of(rest) };
                self.covered = self.covered.max(found);
            }
            if self.covered == 0 {
                clean.push(rest[0]);
                self.masked = false;
            } else {
                if !self.masked {
                    clean.extend(MASK.as_bytes());
                }
                self.masked = true;
                self.covered -= 1;
            }
        }
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub(values: &[&str], chunks: &[&str]) -> String {
        let forms = Arc::new(Forms::of(values.iter().map(|value| value.as_bytes())));
        let mut scrubber = Scrubber::new(forms);
        let mut clean = Vec::new();
        for chunk in chunks {
            clean.extend(scrubber.push(chunk.as_bytes()));
        }
        clean.extend(scrubber.finish());
        String::from_utf8(clean).unwrap()
    }

    #[test]
    fn secrets_are_replaced_wherever_the_stream_is_cut() {
        let text = "a hunter2-hunter2 b aHVudGVyMi1odW50ZXIy c";
        for cut in 0..=text.len() {
            assert_eq!(scrub(&["hunter2-hunter2"], &[&text[..cut], &text[cut..]]), "a ******** b ******** c", "{cut}");
        }
        let bytes: Vec<&str> = text.split("").collect();
        assert_eq!(scrub(&["hunter2-hunter2"], &bytes), "a ******** b ******** c");
    }

    #[test]
    fn secrets_that_overlap_or_touch_are_replaced_whole() {
        assert_eq!(scrub(&["12345678", "56789012"], &["x123456789012y"]), "x********y");
        assert_eq!(scrub(&["12345678"], &["x1234567812345678y"]), "x********y");
        assert_eq!(scrub(&["password1", "password123"], &["password1", "23."]), "********.");
        assert_eq!(scrub(&["password1", "password123"], &["password1", "2."]), "********2.");
    }

    #[test]
    fn text_without_secrets_is_not_changed() {
        for text in ["", "hunter", "hunter2-hunte", "\u{e9}\u{20ac}"] {
            let cut = text.len() / 2;
            let cut = text.floor_char_boundary(cut);
            let expected = if text == "hunter2-hunte" { MASK } else { text };
            assert_eq!(scrub(&["hunter2-hunter2"], &[&text[..cut], &text[cut..]]), expected);
        }
        assert_eq!(scrub(&[], &["abc"]), "abc");
        assert_eq!(scrub(&["short"], &["short"]), "short");
    }

    #[test]
    fn output_that_cannot_begin_a_secret_is_not_kept_back() {
        let mut scrubber = Scrubber::new(Arc::new(Forms::of(["hunter2-hunter2".as_bytes()])));
        assert_eq!(scrubber.push(b"50 % done\n"), b"50 % done\n");
        assert_eq!(scrubber.push(b"to hun"), b"to ");
        assert_eq!(scrubber.push(b"gary\n"), b"hungary\n");
    }

    #[test]
    fn a_long_value_is_replaced_by_one_mask() {
        let key: String = (0..3_000_u32).map(|n| char::from(b'!' + (n * n % 91) as u8)).collect();
        let text = format!("begin {key} end");
        assert_eq!(scrub(&[&key], &[&text]), "begin ******** end");
        let (one, two) = text.split_at(1_234);
        assert_eq!(scrub(&[&key], &[one, two]), "begin ******** end");
    }

    #[test]
    fn a_whole_text_is_scrubbed() {
        let forms = Arc::new(Forms::of(["hunter2-hunter2".as_bytes()]));
        assert_eq!(Scrubber::scrub(&forms, "no answer from h?k=hunter2-hunter2: x"), "no answer from h?k=********: x");
        assert_eq!(Scrubber::scrub(&Arc::default(), "x"), "x");
    }
}
