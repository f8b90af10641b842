//! References and the scrubber take any text: the first half of the input is a value, the second a text in two chunks.

#![no_main]

use std::sync::Arc;

use everytick_domain::secret::{Encoding, Forms, Scrubber, fill};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (value, text) = data.split_at(data.len() / 2);
    if let Ok(text) = std::str::from_utf8(text) {
        for encoding in [Encoding::Plain, Encoding::Percent, Encoding::Json] {
            let _ = fill::<String>(text, encoding, &mut Vec::new(), |_| Ok(Some(value)));
        }
    }
    let mut scrubber = Scrubber::new(Arc::new(Forms::of([value])));
    let (one, two) = text.split_at(text.len() / 2);
    let mut clean = scrubber.push(one);
    clean.extend(scrubber.push(two));
    clean.extend(scrubber.finish());
    let survives = value.len() >= 8 && clean.windows(value.len()).any(|window| window == value);
    // A value of stars only looks like its mask.
    assert!(!survives || value.iter().all(|byte| *byte == b'*'));
});
