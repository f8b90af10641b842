//! Reads the few fields of a certificate that rustls does not show: its end, its subject and its alternative names. rustls has
//! verified the certificate before, so a field that cannot be read is missing, not an error.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use everytick_domain::time::DbTime;

/// The verified certificate of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCertificate(Arc<Names>);

#[derive(PartialEq, Eq, Debug)]
struct Names {
    subject: String,
    alternative: Vec<String>,
}

impl ClientCertificate {
    pub(super) fn read(der: &[u8]) -> Self {
        let names = Body::read(der).map(|body| Names {
            subject: body.subject().unwrap_or_default(),
            alternative: body.alternative_names().unwrap_or_default(),
        });
        Self(Arc::new(names.unwrap_or(Names { subject: String::new(), alternative: Vec::new() })))
    }

    /// The distinguished name in the form of RFC 4514, such as `CN=worker-1,O=Example`.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// The subject alternative names, such as `DNS:worker-1.example.org`, `URI:spiffe://example.org/worker`, `IP:10.0.0.5` and
    /// `email:ops@example.org`.
    #[must_use]
    pub fn alternative_names(&self) -> &[String] {
        &self.0.alternative
    }
}

/// The second after which the certificate is not valid, since 1970.
pub(super) fn not_after(der: &[u8]) -> Option<i64> {
    let mut validity = Der(Body::read(der)?.validity);
    validity.next()?;
    let (tag, text) = validity.next()?;
    let text = std::str::from_utf8(text).ok()?;
    let text = match tag {
        // Two digits of the year: 50 to 99 are 1950 to 1999.
        UTC_TIME if text.get(..2)? >= "50" => format!("19{text}"),
        UTC_TIME => format!("20{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| text.get(from..to);
    let rest = part(14, text.len())?;
    let [year, month, day] = [part(0, 4)?, part(4, 6)?, part(6, 8)?];
    let [hour, minute, second] = [part(8, 10)?, part(10, 12)?, part(12, 14)?];
    let end: DbTime = format!("{year}-{month}-{day}T{hour}:{minute}:{second}{rest}").parse().ok()?;
    Some(end.timestamp().as_second())
}

const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OCTET_STRING: u8 = 0x04;
/// `[0] version` and `[3] extensions` of the body.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// The kinds of a general name.
const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const URI: u8 = 0x86;
const IP: u8 = 0x87;

/// 2.5.29.17
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Attributes of a distinguished name: the last byte after 2.5.4, and the name in RFC 4514.
const ATTRIBUTES: [(u8, &str); 6] = [(3, "CN"), (6, "C"), (7, "L"), (8, "ST"), (10, "O"), (11, "OU")];

/// The values in a piece of DER, in order.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The tag and the content of the next value.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().and_then(|(found, content)| (found == tag).then_some(content))
    }
}

/// The fields of a certificate's body that are used here.
struct Body<'a> {
    validity: &'a [u8],
    subject: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> Body<'a> {
    fn read(der: &'a [u8]) -> Option<Self> {
        let mut body = Der(Der(Der(der).expect(SEQUENCE)?).expect(SEQUENCE)?);
        match body.next()? {
            (VERSION, _) => drop(body.expect(INTEGER)?), // the serial number
            (INTEGER, _) => {}
            _ => return None,
        }
        let [_algorithm, _issuer] = [body.expect(SEQUENCE)?, body.expect(SEQUENCE)?];
        let [validity, subject, _key] = [body.expect(SEQUENCE)?, body.expect(SEQUENCE)?, body.expect(SEQUENCE)?];
        let mut extensions: &[u8] = &[];
        while let Some((tag, content)) = body.next() {
            if tag == EXTENSIONS {
                extensions = Der(content).expect(SEQUENCE)?;
            }
        }
        Some(Self { validity, subject, extensions })
    }

    /// RFC 4514 writes the last part of the name first.
    fn subject(&self) -> Option<String> {
        let (mut parts, mut names) = (Vec::new(), Der(self.subject));
        while let Some(part) = names.expect(SET) {
            let (mut set, mut attributes) = (Der(part), Vec::new());
            while let Some(attribute) = set.expect(SEQUENCE) {
                attributes.push(attribute_text(attribute)?);
            }
            parts.push(attributes.join("+"));
        }
        parts.reverse();
        Some(parts.join(","))
    }

    fn alternative_names(&self) -> Option<Vec<String>> {
        let mut extensions = Der(self.extensions);
        while let Some(extension) = extensions.expect(SEQUENCE) {
            let mut extension = Der(extension);
            if extension.expect(OBJECT_ID)? != SUBJECT_ALT_NAME {
                continue;
            }
            // A boolean before the value states whether the extension is critical.
            let value = match extension.next()? {
                (OCTET_STRING, value) => value,
                _ => extension.expect(OCTET_STRING)?,
            };
            let (mut names, mut found) = (Der(Der(value).expect(SEQUENCE)?), Vec::new());
            while let Some((kind, name)) = names.next() {
                found.extend(general_name(kind, name));
            }
            return Some(found);
        }
        Some(Vec::new())
    }
}

fn attribute_text(attribute: &[u8]) -> Option<String> {
    let mut attribute = Der(attribute);
    let id = attribute.expect(OBJECT_ID)?;
    let (tag, value) = attribute.next()?;
    let known = ATTRIBUTES.iter().find(|(last, _)| id == [0x55, 0x04, *last]).map(|(_, name)| *name);
    match (known, tag, std::str::from_utf8(value)) {
        (Some(name), UTF8_STRING | PRINTABLE_STRING | IA5_STRING, Ok(text)) => {
            Some(format!("{name}={}", escaped(text)))
        }
        _ => Some(format!("{}=#{}", object_id(id)?, hex(value))),
    }
}

/// Escapes the characters that separate parts, so that a name cannot look like another one.
fn escaped(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut out = String::new();
    for (at, c) in text.chars().enumerate() {
        match c {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => out.extend(['\\', c]),
            '#' if at == 0 => out.extend(['\\', c]),
            ' ' if at == 0 || at == last => out.extend(['\\', c]),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                c.encode_utf8(&mut bytes).bytes().for_each(|byte| {
                    let _ = write!(out, "\\{byte:02x}");
                });
            }
            c => out.push(c),
        }
    }
    out
}

/// An object identifier with dots.
fn object_id(der: &[u8]) -> Option<String> {
    let (&first, rest) = der.split_first()?;
    let mut text = format!("{}.{}", first / 40, first % 40);
    let mut number: u64 = 0;
    for byte in rest {
        number = number.checked_mul(128)? | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            let _ = write!(text, ".{number}");
            number = 0;
        }
    }
    Some(text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn general_name(kind: u8, name: &[u8]) -> Option<String> {
    let text = || std::str::from_utf8(name).ok();
    match kind {
        EMAIL => Some(format!("email:{}", text()?)),
        DNS => Some(format!("DNS:{}", text()?)),
        URI => Some(format!("URI:{}", text()?)),
        IP => {
            let v4 = <[u8; 4]>::try_from(name).map(|address| IpAddr::V4(Ipv4Addr::from(address)));
            let v6 = <[u8; 16]>::try_from(name).map(|address| IpAddr::V6(Ipv6Addr::from(address)));
            Some(format!("IP:{}", v4.or(v6).ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_subject_and_the_alternative_names_are_read() {
        let der = certificate(|params| {
            params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
            params.distinguished_name.push(DnType::CommonName, "worker-1");
            params.subject_alt_names = vec![
                SanType::DnsName("worker-1.example.org".try_into().unwrap()),
                SanType::URI("spiffe://example.org/worker".try_into().unwrap()),
                SanType::IpAddress("10.0.0.5".parse().unwrap()),
                SanType::IpAddress("fd00::5".parse().unwrap()),
                SanType::Rfc822Name("ops@example.org".try_into().unwrap()),
            ];
        });
        let certificate = ClientCertificate::read(&der);
        assert_eq!(certificate.subject(), "CN=worker-1,O=Example\\, Inc.");
        assert_eq!(
            certificate.alternative_names(),
            [
                "DNS:worker-1.example.org",
                "URI:spiffe://example.org/worker",
                "IP:10.0.0.5",
                "IP:fd00::5",
                "email:ops@example.org"
            ]
        );
    }

    #[test]
    fn a_subject_cannot_look_like_another_one() {
        let subject = |name: &str| {
            let der = certificate(|params| params.distinguished_name.push(DnType::CommonName, name));
            ClientCertificate::read(&der).subject().to_owned()
        };
        assert_eq!(subject("a,O=b"), "CN=a\\,O\\=b");
        assert_eq!(subject(" #a\n\\ "), "CN=\\ #a\\0a\\\\\\ ");
        let other = certificate(|params| params.distinguished_name.push(DnType::CustomDnType(vec![1, 2, 300]), "x"));
        assert_eq!(ClientCertificate::read(&other).subject(), "1.2.300=#78");
    }

    #[test]
    fn the_end_is_read_in_both_forms() {
        for (year, expected) in
            [(2030, "2030-02-03T00:00:00Z"), (2049, "2049-02-03T00:00:00Z"), (2050, "2050-02-03T00:00:00Z")]
        {
            let der = certificate(|params| params.not_after = date_time_ymd(year, 2, 3));
            let expected: DbTime = expected.parse().unwrap();
            assert_eq!(not_after(&der), Some(expected.timestamp().as_second()), "{year}");
        }
    }

    #[test]
    fn cut_and_changed_certificates_are_read_without_a_panic() {
        let der = certificate(|params| params.distinguished_name.push(DnType::CommonName, "worker-1"));
        for length in 0..der.len() {
            let _ = (not_after(&der[..length]), ClientCertificate::read(&der[..length]));
            let mut changed = der.clone();
            changed[length] ^= 0xff;
            let _ = (not_after(&changed), ClientCertificate::read(&changed));
        }
    }
}
