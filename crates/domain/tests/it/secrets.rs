//! Properties of references to secrets and of the scrubber.

use std::sync::Arc;

use everytick_domain::secret::{Encoding, Forms, Piece, Scrubber, fill, pieces};
use proptest::prelude::*;

const PARTS: &[&str] =
    &["{", "{{", "}}", "}", " ", "secrets.", "secrets", "a", "b.c", "\u{e9}", "\t", "flow", "{{ secrets.a }}"];

/// Texts with many braces, names and blanks.
fn tricky() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PARTS), 0..20).prop_map(|parts| parts.concat())
}

/// Values over a small alphabet, so that they overlap each other and themselves.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(&b"ab/\n+"[..]), 1..150)
}

proptest! {
    #[test]
    fn the_pieces_of_a_text_are_the_whole_text(text in tricky()) {
        let Ok(pieces) = pieces(&text) else { return Ok(()) };
        let blank = |text: &str| text.replace([' ', '\t'], "");
        let joined: String = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => (*text).to_owned(),
            Piece::Secret(name) => format!("{{{{secrets.{name}}}}}"),
        }).collect();
        prop_assert_eq!(blank(&joined), blank(&text));
        // A text between two references contains no reference.
        for piece in &pieces {
            if let Piece::Text(text) = piece {
                prop_assert!(!everytick_domain::secret::pieces(text).unwrap().iter().any(|piece| matches!(piece, Piece::Secret(_))));
            }
        }
    }

    #[test]
    fn any_text_is_split_or_refused(text in ".*") {
        let _ = pieces(&text);
    }

    #[test]
    fn a_payload_with_filled_references_stays_json(value in ".{0,40}", before in "[a-z\" {}]{0,10}") {
        let payload = serde_json::json!({"k": format!("{before}{{{{ secrets.s }}}}"), "n": 1.5}).to_string();
        let mut filled = Vec::new();
        fill::<String>(&payload, Encoding::Json, &mut filled, |_| Ok(Some(value.as_bytes()))).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&filled).unwrap();
        prop_assert_eq!(&read["k"], &serde_json::Value::String(format!("{before}{value}")));
    }

    /// The output does not depend on the chunks, and no value survives in it.
    #[test]
    fn no_value_survives_however_the_stream_is_cut(
        values in prop::collection::vec(value(), 1..4),
        noise in prop::collection::vec(prop::sample::select(&b"ab/\n+xyz"[..]), 0..60),
        order in prop::collection::vec(0..8_usize, 1..8),
        cuts in prop::collection::vec(1..40_usize, 1..20),
    ) {
        let forms = Arc::new(Forms::of(values.iter().map(Vec::as_slice)));
        let mut text = Vec::new();
        for index in order {
            text.extend(values.get(index).unwrap_or(&noise));
        }
        let whole = {
            let mut scrubber = Scrubber::new(Arc::clone(&forms));
            let mut clean = scrubber.push(&text);
            clean.extend(scrubber.finish());
            clean
        };
        let mut scrubber = Scrubber::new(forms);
        let (mut clean, mut rest, mut cut) = (Vec::new(), text.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rest.len().min(*cut.next().unwrap()));
            clean.extend(scrubber.push(chunk));
            rest = after;
        }
        clean.extend(scrubber.finish());
        prop_assert_eq!(&clean, &whole);
        for value in values.iter().filter(|value| value.len() >= 8) {
            prop_assert!(!clean.windows(value.len()).any(|window| window == value.as_slice()));
        }
    }
}
