//! The text of an API token: `etk_`, 32 random characters of base 62 (190 bits), and 6 characters that encode a CRC-32
//! of the preceding text. The checksum lets a scanner recognize leaked tokens, and lets the API refuse a mistyped one
//! without a query. The store keeps only the hash.

use std::fmt;

const PREFIX: &str = "etk_";
const RANDOM_CHARS: usize = 32;
const CHECK_CHARS: usize = 6;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The context of the hash. Changing it makes all stored tokens unknown.
const HASH_CONTEXT: &str = "everytick api token v1";

/// The number of characters of a token that lists show.
pub const TOKEN_PREFIX_CHARS: usize = 8;

/// A token with a right checksum. It is a secret: `Debug` shows only its first characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The text is not a token: it was cut off or mistyped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadToken;

impl fmt::Display for BadToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chars = RANDOM_CHARS + CHECK_CHARS;
        write!(f, "not a token; a token is {PREFIX:?} and {chars} letters and digits, as printed when it was created")
    }
}

/// The hash under which a token is stored and looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl Token {
    /// Makes a token from random bytes. Uses only bytes below 248, so that all characters are equally likely. Returns
    /// `None` if there are fewer than 32 such bytes. With 64 random bytes the probability of that is below 10^-30.
    #[must_use]
    pub fn from_random(random: &[u8]) -> Option<Self> {
        const FAIR: u8 = 248;
        let chars = random.iter().filter(|byte| **byte < FAIR).map(|byte| char::from(digit(u32::from(*byte))));
        let chars: String = chars.take(RANDOM_CHARS).collect();
        (chars.len() == RANDOM_CHARS).then(|| {
            let text = format!("{PREFIX}{chars}");
            let check = checksum(&text);
            Self(text + &check)
        })
    }

    pub fn parse(text: &str) -> Result<Self, BadToken> {
        let split = text.len().checked_sub(CHECK_CHARS).filter(|_| text.is_ascii()).ok_or(BadToken)?;
        let (body, check) = text.split_at(split);
        let random = body.strip_prefix(PREFIX).ok_or(BadToken)?;
        let sound = random.len() == RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if sound && checksum(body) == check { Ok(Self(text.to_owned())) } else { Err(BadToken) }
    }

    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(blake3::derive_key(HASH_CONTEXT, self.0.as_bytes()))
    }

    /// The first characters, for lists.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.0.get(..TOKEN_PREFIX_CHARS).unwrap_or_default()
    }

    /// The whole token: for the answer to the request that creates it, and for the `Authorization` header.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.prefix())
    }
}

impl TokenHash {
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

fn digit(value: u32) -> u8 {
    BASE62.get((value % 62) as usize).copied().unwrap_or(b'0')
}

/// The CRC-32 of the text in base 62, the most significant digit first.
fn checksum(text: &str) -> String {
    let mut rest = crc32(text.as_bytes());
    let mut digits = [b'0'; CHECK_CHARS];
    for slot in digits.iter_mut().rev() {
        *slot = digit(rest);
        rest /= 62;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// CRC-32 as in zip and PNG (reflected polynomial 0xEDB88320). A token has 36 bytes, so no table is needed.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc: u32, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn crc32_gives_the_standard_check_value() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn golden_tokens_and_hashes_never_change() {
        let zero = Token::from_random(&[0; 64]).unwrap();
        assert_eq!(zero.expose(), "etk_000000000000000000000000000000001EBlOs");
        let counting = Token::from_random(&(0..64).collect::<Vec<u8>>()).unwrap();
        assert_eq!(counting.expose(), "etk_0123456789ABCDEFGHIJKLMNOPQRSTUV3VprrN");
        let hash = blake3::Hash::from_bytes(*zero.hash().as_bytes()).to_hex();
        assert_eq!(hash.as_str(), "6fa26dea33b31e849d697823f684ea65d698665234ba73903bc73a08c90465f3");
    }

    #[test]
    fn too_few_fair_bytes_make_no_token() {
        assert_eq!(Token::from_random(&[255; 64]), None);
        assert_eq!(Token::from_random(&[1; 31]), None);
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let token = Token::from_random(&[7; 64]).unwrap();
        assert_eq!(format!("{token:?}"), "Token(etk_7777…)");
        assert_eq!(format!("{:?}", token.hash()), "TokenHash(…)");
    }

    #[test]
    fn other_texts_are_refused() {
        let token = Token::from_random(&[7; 64]).unwrap();
        let text = token.expose();
        let long = "e".repeat(8192);
        for bad in [
            "",
            "etk_",
            &text[..41],
            &format!("{text}0"),
            &text.to_uppercase(),
            &long,
            "etk_\0",
            "ééééééé",
            &format!(" {text}"),
        ] {
            assert_eq!(Token::parse(bad), Err(BadToken), "{bad:?}");
        }
        assert_eq!(Token::parse(text), Ok(token));
    }

    proptest! {
        #[test]
        fn each_token_parses_and_one_changed_character_is_noticed(random in prop::collection::vec(0u8..248, 32), at in 4usize..42, to in 0usize..62) {
            let token = Token::from_random(&random).unwrap();
            prop_assert_eq!(Token::parse(token.expose()), Ok(token.clone()));
            let mut changed = token.expose().as_bytes().to_vec();
            let digit = BASE62[to];
            prop_assume!(changed[at] != digit);
            changed[at] = digit;
            prop_assert_eq!(Token::parse(std::str::from_utf8(&changed).unwrap()), Err(BadToken));
        }
    }
}
