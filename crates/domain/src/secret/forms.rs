//! The texts by which a value is recognized in an output: the value, each of its lines, and the encodings of the value. These
//! are base64 at every alignment, percent-encoding and JSON escapes. Long texts are cut into blocks, so that a scrubber keeps
//! back at most [`FORM_BYTES_MAX`] bytes.

use std::fmt;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE},
};
use zeroize::Zeroizing;

use super::reference::percent;

/// Shorter values and shorter lines are not recognized: they occur by chance.
pub const SCRUBBED_BYTES_MIN: usize = 8;
const BLOCK_BYTES: usize = 64;
/// The last block of a text contains its rest.
pub(super) const FORM_BYTES_MAX: usize = 2 * BLOCK_BYTES - 1;

/// A sorted list of texts. It is as secret as the values.
#[derive(Clone, Default)]
pub struct Forms {
    /// Sorted, without duplicates.
    pub(super) sorted: Vec<Zeroizing<Vec<u8>>>,
    /// For each form, the longest other form that is a prefix of it.
    pub(super) prefix: Vec<Option<usize>>,
    /// Whether a form begins with this byte.
    pub(super) begins: Vec<bool>,
}

impl fmt::Debug for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Forms({})", self.sorted.len())
    }
}

impl Forms {
    #[must_use]
    pub fn of<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut sorted = Vec::new();
        for value in values {
            for text in texts(value) {
                sorted.extend(blocks(&text).map(|block| Zeroizing::new(block.to_vec())));
            }
        }
        sorted.sort_unstable_by(|one, other| one.as_slice().cmp(other.as_slice()));
        sorted.dedup();
        let mut begins = vec![false; 256];
        for form in &sorted {
            if let Some(first) = form.first() {
                begins[usize::from(*first)] = true;
            }
        }
        let prefix = prefixes(&sorted);
        Self { sorted, prefix, begins }
    }

    /// Whether no text is recognized.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The length of the longest form with which `text` begins; 0 if there is none.
    pub(super) fn at_start_of(&self, text: &[u8]) -> usize {
        // Let F be the last form that sorts before `text` or equals it. Each form that is a prefix of `text` is F or a prefix
        // of F.
        let count_up_to_text = self.sorted.partition_point(|form| form.as_slice() <= text);
        let mut candidate = count_up_to_text.checked_sub(1);
        while let Some(index) = candidate {
            let Some(form) = self.sorted.get(index) else { return 0 };
            if text.starts_with(form) {
                return form.len();
            }
            candidate = self.prefix.get(index).copied().flatten();
        }
        0
    }

    /// Whether a form begins with `text` and is longer.
    pub(super) fn continues(&self, text: &[u8]) -> bool {
        let next = self.sorted.partition_point(|form| form.as_slice() <= text);
        self.sorted.get(next).is_some_and(|form| form.starts_with(text))
    }
}

/// For each form, the index of its longest proper prefix in the list. Its other prefixes are the prefixes of that one.
fn prefixes(sorted: &[Zeroizing<Vec<u8>>]) -> Vec<Option<usize>> {
    let mut prefix: Vec<Option<usize>> = Vec::with_capacity(sorted.len());
    for (index, form) in sorted.iter().enumerate() {
        let mut candidate = index.checked_sub(1);
        while let Some(before) = candidate {
            if form.starts_with(&sorted[before]) {
                break;
            }
            candidate = prefix[before];
        }
        prefix.push(candidate);
    }
    prefix
}

/// Every form in which the value may occur. Leaves out forms that are too short.
fn texts(value: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    if value.len() >= SCRUBBED_BYTES_MIN {
        found.push(value.to_vec());
        encoded(value, &mut found);
    }
    // A key in several lines may be printed with other line ends, or in part.
    for line in value.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| line.len() < value.len()) {
        found.push(line.to_vec());
    }
    // An output rarely repeats the line end with which a file ends.
    let trimmed = value.trim_ascii();
    if trimmed.len() < value.len() && trimmed.len() >= SCRUBBED_BYTES_MIN {
        found.push(trimmed.to_vec());
        encoded(trimmed, &mut found);
    }
    found.into_iter().filter(|text| text.len() >= SCRUBBED_BYTES_MIN).map(Zeroizing::new).collect()
}

fn encoded(value: &[u8], found: &mut Vec<Vec<u8>>) {
    for engine in [STANDARD, URL_SAFE] {
        let padded = engine.encode(value);
        found.push(padded.trim_end_matches('=').as_bytes().to_vec());
        found.push(padded.into_bytes());
    }
    found.extend((0..3).flat_map(|offset| base64_within(value, offset)));
    percent_forms(value, found);
    if let Ok(text) = std::str::from_utf8(value) {
        json_forms(text, found);
    }
}

/// The characters of base64 that the value alone decides if `offset` other bytes precede it, as in `user:password`.
fn base64_within(value: &[u8], offset: usize) -> [Vec<u8>; 2] {
    let mut padded = vec![0; offset];
    padded.extend(value);
    let text = STANDARD_NO_PAD.encode(&padded);
    // The first characters contain bits of the preceding bytes, the last one bits of the following byte.
    let from = (offset * 8).div_ceil(6);
    let to = padded.len() * 8 / 6;
    let core = text.get(from..to).unwrap_or_default().as_bytes().to_vec();
    let url_safe = core.iter().map(|byte| match byte {
        b'+' => b'-',
        b'/' => b'_',
        other => *other,
    });
    [url_safe.collect(), core]
}

/// Programs differ in the characters that they keep, in the case of the digits, and in how they write a blank.
fn percent_forms(value: &[u8], found: &mut Vec<Vec<u8>>) {
    let kept = |keep: &[u8], plus: bool, upper: bool| {
        let mut text = Vec::new();
        for byte in value {
            match byte {
                b' ' if plus => text.push(b'+'),
                byte if byte.is_ascii_alphanumeric() || keep.contains(byte) => text.push(*byte),
                byte if upper => text.extend(format!("%{byte:02X}").as_bytes()),
                byte => text.extend(format!("%{byte:02x}").as_bytes()),
            }
        }
        text
    };
    let mut ours = Vec::new();
    percent(value, &mut ours);
    found.push(ours);
    for upper in [true, false] {
        found.push(kept(b"-._~", false, upper));
        found.push(kept(b"-._~!'()*", false, upper));
        found.push(kept(b"-._*", true, upper));
        // The characters that the URL parser does not encode in a query.
        found.push(kept(b"!$%&()*+,-./:;=?@[\\]^_`{|}~", false, upper));
    }
}

/// Programs differ in whether they escape characters outside ASCII, and slashes.
fn json_forms(text: &str, found: &mut Vec<Vec<u8>>) {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    let ascii = |upper: bool| {
        let mut escaped = String::new();
        let mut units = [0; 2];
        for char in inner.chars() {
            if char.is_ascii() {
                escaped.push(char);
                continue;
            }
            for unit in char.encode_utf16(&mut units) {
                escaped.push_str(&if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") });
            }
        }
        escaped
    };
    for form in [inner.to_owned(), ascii(false), ascii(true)] {
        found.push(form.replace('/', "\\/").into_bytes());
        found.push(form.into_bytes());
    }
}

/// Cuts a text into blocks of 64 bytes. The last block has up to 127.
fn blocks(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let size = if rest.len() <= FORM_BYTES_MAX { rest.len() } else { BLOCK_BYTES };
        let (block, after) = rest.split_at(size);
        rest = after;
        Some(block)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(value: &str, form: &str) -> bool {
        let forms = Forms::of([value.as_bytes()]);
        forms.at_start_of(form.as_bytes()) == form.len()
    }

    #[test]
    fn a_value_is_recognized_in_its_encodings() {
        let value = "p@ss w\u{f6}rd/\"1\"";
        for form in [
            value,
            "cEBzcyB3w7ZyZC8iMSI=",
            "cEBzcyB3w7ZyZC8iMSI",
            "p%40ss%20w%C3%B6rd%2F%221%22",
            "p%40ss%20w%c3%b6rd%2f%221%22",
            "p%40ss+w%C3%B6rd%2F%221%22",
            "p@ss%20w%C3%B6rd/%221%22",
            "p@ss w\u{f6}rd/\\\"1\\\"",
            "p@ss w\\u00f6rd/\\\"1\\\"",
            "p@ss w\\u00F6rd\\/\\\"1\\\"",
        ] {
            assert!(has(value, form), "{form}");
        }
        assert!(!has(value, "p@ss word"));
    }

    #[test]
    fn base64_is_recognized_at_every_alignment() {
        let (value, forms) = ("hunter2-hunter2", Forms::of(["hunter2-hunter2".as_bytes()]));
        for before in ["", "a", "ab", "abc", "user:"] {
            for after in ["", "x", "xy"] {
                let text = STANDARD.encode(format!("{before}{value}{after}"));
                let longest = (0..text.len()).map(|at| forms.at_start_of(&text.as_bytes()[at..])).max().unwrap();
                assert!(longest >= 18, "{text}: {longest}");
            }
        }
    }

    #[test]
    fn short_values_have_no_forms_and_long_ones_have_blocks() {
        assert!(Forms::of(["1234567".as_bytes()]).is_empty());
        assert!(!Forms::of(["12345678".as_bytes()]).is_empty());
        assert!(Forms::of(["abc\ndef".as_bytes()]).is_empty());
        let long: Vec<u8> = (0..32 * 1024_u32).map(|n| b' ' + (n * n % 90) as u8).collect();
        let forms = Forms::of([long.as_slice()]);
        assert!(forms.sorted.iter().all(|form| (SCRUBBED_BYTES_MIN..=FORM_BYTES_MAX).contains(&form.len())));
        let lengths: Vec<usize> = blocks(&[0; 300]).map(<[u8]>::len).collect();
        assert_eq!(lengths, [64, 64, 64, 108]);
    }

    #[test]
    fn lines_of_a_value_are_recognized_alone() {
        let value = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----\n";
        assert!(has(value, "MIIEvQIBADANBgkq") && has(value, "-----END KEY-----"));
    }

    #[test]
    fn the_longest_form_at_a_position_is_found() {
        let forms = Forms::of(["aaaaaaaa", "aaaaaaaab", "aaaaaaaabbbb", "aaaaaaaac"].map(str::as_bytes));
        for (text, length) in [
            ("aaaaaaaa", 8),
            ("aaaaaaaaz", 8),
            ("aaaaaaaab", 9),
            ("aaaaaaaabbb", 9),
            ("aaaaaaaabbbbz", 12),
            ("aaaaaaaabz", 9),
            ("aaaaaaaac", 9),
            ("aaaaaaa", 0),
            ("zaaaaaaaa", 0),
            ("", 0),
        ] {
            assert_eq!(forms.at_start_of(text.as_bytes()), length, "{text}");
        }
        assert!(forms.continues(b"aaaaaaaa") && forms.continues(b"a") && forms.continues(b"aaaaaaaabb"));
        assert!(!forms.continues(b"aaaaaaaabbbb") && !forms.continues(b"b"));
    }

    #[test]
    fn debug_output_hides_the_forms() {
        assert!(!format!("{:?}", Forms::of(["hunter2-hunter2".as_bytes()])).contains("hunter2"));
    }
}
