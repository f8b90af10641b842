//! Which addresses webhooks may use: public ones, and those that the operator allows. Pure: `http/deliver` and
//! `http/dns` apply the policy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Refuses every address that is not public, so that a job cannot reach into its node's internal network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressPolicy {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
}

/// The kind of an address that the operator denies.
const DENIED: &str = "in a range that the operator denies (deny_ranges)";

/// An address that webhooks may not use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{address} is {kind}{}", remedy(self))]
pub struct Refused {
    pub address: IpAddr,
    /// The kind of address, with its article: `a loopback address`.
    pub kind: &'static str,
}

impl Refused {
    /// Whether the operator denies the address, so that no other setting allows it.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.kind == DENIED
    }
}

fn remedy(refused: &Refused) -> String {
    match refused.is_denied() {
        true => String::new(),
        false => {
            format!("; an operator can allow it with --allow-webhook-range {}", IpNet::from(refused.address))
        }
    }
}

impl AddressPolicy {
    /// Allows public addresses and these ranges.
    #[must_use]
    pub fn new(allow: Vec<IpNet>) -> Self {
        Self { allow, deny: Vec::new() }
    }

    /// The same policy, which refuses these ranges, whatever else allows them.
    #[must_use]
    pub fn denying(self, deny: Vec<IpNet>) -> Self {
        Self { deny, ..self }
    }

    /// The ranges that the operator allows.
    #[must_use]
    pub fn allowed(&self) -> &[IpNet] {
        &self.allow
    }

    /// Checks an address before it is dialled.
    ///
    /// - A mapped address (`::ffff:10.0.0.1`) is dialled as its IPv4 address, so the IPv4 address is checked.
    /// - For an IPv6 address that tunnels to an IPv4 address, both addresses are checked.
    /// - Each of them passes if it is public or in a range that the operator allows, and in none that the operator denies.
    pub fn check(&self, address: IpAddr) -> Result<(), Refused> {
        let address = address.to_canonical();
        if self.denies(address) {
            return Err(Refused { address, kind: DENIED });
        }
        if self.allow.iter().any(|range| range.contains(&address)) {
            return Ok(());
        }
        match address {
            IpAddr::V4(v4) => match kind_of_v4(v4) {
                Some(kind) => Err(Refused { address, kind }),
                None => Ok(()),
            },
            IpAddr::V6(v6) => {
                if let Some(kind) = kind_of_v6(v6) {
                    return Err(Refused { address, kind });
                }
                for inner in tunnelled(v6).into_iter().flatten() {
                    self.check(inner.into()).map_err(|_| Refused { address, kind: "a tunnel to a refused address" })?;
                }
                Ok(())
            }
        }
    }
}

impl AddressPolicy {
    fn denies(&self, address: IpAddr) -> bool {
        let is_denied = |address: IpAddr| self.deny.iter().any(|range| range.contains(&address));
        let inner = match address {
            IpAddr::V6(v6) => tunnelled(v6),
            IpAddr::V4(_) => [None, None],
        };
        !self.deny.is_empty()
            && (is_denied(address) || inner.into_iter().flatten().any(|inner| is_denied(inner.into())))
    }
}

fn kind_of_v4(address: Ipv4Addr) -> Option<&'static str> {
    V4_REFUSED.iter().find(|(range, _)| range.contains(&address)).map(|(_, kind)| *kind)
}

fn kind_of_v6(address: Ipv6Addr) -> Option<&'static str> {
    let listed = V6_REFUSED.iter().find(|(range, _)| range.contains(&address)).map(|(_, kind)| *kind);
    let known = V6_KNOWN.iter().any(|range| range.contains(&address));
    listed.or((!known).then_some("a reserved address"))
}

/// The IPv4 addresses at the far end of the tunnel that an IPv6 address describes.
fn tunnelled(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let from_right = |bits: u32| Ipv4Addr::from_bits((address.to_bits() >> bits) as u32);
    let last = from_right(0);
    if NAT64.contains(&address) || COMPATIBLE.contains(&address) {
        [Some(last), None]
    } else if SIX_TO_FOUR.contains(&address) {
        [Some(from_right(80)), None]
    } else if TEREDO.contains(&address) {
        [Some(from_right(64)), Some(Ipv4Addr::from_bits(!last.to_bits()))] // the server, and the client, whose bits are inverted
    } else if matches!(address.segments(), [.., 0x0000 | 0x0200, 0x5efe, _, _]) {
        [Some(last), None] // ISATAP
    } else {
        [None, None]
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(address: u128, bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from_bits(address), bits)
}

/// IANA's special-purpose registry without the globally reachable ranges, plus the metadata services outside of it.
const V4_REFUSED: [(Ipv4Net, &str); 18] = [
    (v4(0, 0, 0, 0, 8), "an unspecified address"),
    (v4(10, 0, 0, 0, 8), "a private address"),
    (v4(100, 64, 0, 0, 10), "a carrier's private address"),
    (v4(127, 0, 0, 0, 8), "a loopback address"),
    (v4(168, 63, 129, 16, 32), "a metadata service's address"), // Azure's, though the range is public
    (v4(169, 254, 169, 254, 32), "a metadata service's address"),
    (v4(169, 254, 0, 0, 16), "a link-local address"),
    (v4(172, 16, 0, 0, 12), "a private address"),
    (v4(192, 0, 0, 0, 24), "a reserved address"),
    (v4(192, 0, 2, 0, 24), "a documentation address"),
    (v4(192, 88, 99, 0, 24), "a 6to4 relay's address"),
    (v4(192, 168, 0, 0, 16), "a private address"),
    (v4(198, 18, 0, 0, 15), "a benchmarking address"),
    (v4(198, 51, 100, 0, 24), "a documentation address"),
    (v4(203, 0, 113, 0, 24), "a documentation address"),
    (v4(224, 0, 0, 0, 4), "a multicast address"),
    (v4(255, 255, 255, 255, 32), "the broadcast address"),
    (v4(240, 0, 0, 0, 4), "a reserved address"),
];

const V6_REFUSED: [(Ipv6Net, &str); 14] = [
    (v6(0, 128), "an unspecified address"),
    (v6(1, 128), "a loopback address"),
    (v6(0x0064_ff9b_0001 << 80, 48), "a local NAT64 address"),
    (v6(0x0100 << 112, 64), "a discard address"),
    (v6(0x2001_0002_0000 << 80, 48), "a benchmarking address"),
    (v6(0x2001_0010 << 96, 28), "a reserved address"),
    (v6(0x2001_0db8 << 96, 32), "a documentation address"),
    (v6(0x3fff << 112, 20), "a documentation address"),
    (v6((0xfd00_0ec2 << 96) | 0x254, 128), "a metadata service's address"), // EC2's
    (v6((0xfd20_00ce << 96) | 0x254, 128), "a metadata service's address"), // Google's
    (v6(0xfc00 << 112, 7), "a unique-local address"),
    (v6(0xfe80 << 112, 10), "a link-local address"),
    (v6(0xfec0 << 112, 10), "a site-local address"),
    (v6(0xff00 << 112, 8), "a multicast address"),
];

const COMPATIBLE: Ipv6Net = v6(0, 96);
const NAT64: Ipv6Net = v6(0x0064_ff9b << 96, 96);
const SIX_TO_FOUR: Ipv6Net = v6(0x2002 << 112, 16);
const TEREDO: Ipv6Net = v6(0x2001_0000 << 96, 32);
/// All other ranges are unassigned. No public host uses them today, and a future use needs a decision first.
const V6_KNOWN: [Ipv6Net; 3] = [v6(0x2000 << 112, 3), COMPATIBLE, NAT64];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allow: &[&str], address: &str) -> Result<(), Refused> {
        AddressPolicy::new(allow.iter().map(|range| range.parse().unwrap()).collect()).check(address.parse().unwrap())
    }

    #[test]
    fn public_addresses_pass() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001:81b::200e",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2001:0:808:808:0:0:f7f7:f7f7",
            "2606:4700::5efe:8.8.8.8",
        ] {
            assert_eq!(check(&[], address), Ok(()), "{address}");
        }
    }

    #[test]
    fn every_other_kind_of_address_is_refused() {
        for (address, kind) in [
            ("0.0.0.0", "an unspecified address"),
            ("0.1.2.3", "an unspecified address"),
            ("10.0.0.0", "a private address"),
            ("10.255.255.255", "a private address"),
            ("100.64.0.1", "a carrier's private address"),
            ("100.100.100.200", "a carrier's private address"),
            ("100.127.255.255", "a carrier's private address"),
            ("127.0.0.1", "a loopback address"),
            ("127.255.255.254", "a loopback address"),
            ("168.63.129.16", "a metadata service's address"),
            ("169.254.169.254", "a metadata service's address"),
            ("169.254.0.1", "a link-local address"),
            ("172.16.0.1", "a private address"),
            ("172.31.255.255", "a private address"),
            ("192.0.0.192", "a reserved address"),
            ("192.0.2.1", "a documentation address"),
            ("192.88.99.1", "a 6to4 relay's address"),
            ("192.168.1.1", "a private address"),
            ("198.18.0.1", "a benchmarking address"),
            ("198.19.255.255", "a benchmarking address"),
            ("198.51.100.7", "a documentation address"),
            ("203.0.113.7", "a documentation address"),
            ("224.0.0.1", "a multicast address"),
            ("239.255.255.255", "a multicast address"),
            ("240.0.0.1", "a reserved address"),
            ("255.255.255.255", "the broadcast address"),
            ("::", "an unspecified address"),
            ("::1", "a loopback address"),
            ("64:ff9b:1::1", "a local NAT64 address"),
            ("100::1", "a discard address"),
            ("2001:2::1", "a benchmarking address"),
            ("2001:10::1", "a reserved address"),
            ("2001:db8::1", "a documentation address"),
            ("3fff::1", "a documentation address"),
            ("fc00::1", "a unique-local address"),
            ("fd12:3456::1", "a unique-local address"),
            ("fd00:ec2::254", "a metadata service's address"),
            ("fd20:ce::254", "a metadata service's address"),
            ("fe80::1", "a link-local address"),
            ("febf::1", "a link-local address"),
            ("fec0::1", "a site-local address"),
            ("ff02::1", "a multicast address"),
            ("4000::1", "a reserved address"),
            ("5f00::1", "a reserved address"),
            ("::ffff:0:127.0.0.1", "a reserved address"),
        ] {
            assert_eq!(check(&[], address).unwrap_err().kind, kind, "{address}");
        }
    }

    #[test]
    fn a_refused_ipv4_address_is_refused_in_every_ipv6_form() {
        for (mapped, address) in [("::ffff:127.0.0.1", "127.0.0.1"), ("::ffff:a9fe:a9fe", "169.254.169.254")] {
            assert_eq!(check(&[], mapped).unwrap_err().address, address.parse::<IpAddr>().unwrap());
        }
        for tunnel in [
            "::127.0.0.1",
            "::10.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "2002:c0a8:101::1",
            "2001:0:7f00:1:0:0:f7f7:f7f7",  // the server is 127.0.0.1
            "2001:0:808:808:0:0:80ff:fffe", // the client is 127.0.0.1
            "2606:4700::5efe:10.0.0.1",
            "2606:4700::200:5efe:192.168.0.1",
        ] {
            assert_eq!(check(&[], tunnel).unwrap_err().kind, "a tunnel to a refused address", "{tunnel}");
        }
    }

    #[test]
    fn only_the_ranges_of_the_operator_are_allowed() {
        assert_eq!(check(&["10.1.0.0/16"], "10.1.2.3"), Ok(()));
        assert_eq!(check(&["10.1.0.0/16"], "::ffff:10.1.2.3"), Ok(()));
        assert_eq!(check(&["10.1.0.0/16"], "64:ff9b::10.1.2.3"), Ok(()));
        assert_eq!(check(&["fd00:1::/32"], "fd00:1::7"), Ok(()));
        assert_eq!(check(&["127.0.0.0/8", "::1/128"], "::1"), Ok(()));
        assert!(check(&["10.1.0.0/16"], "10.2.0.1").is_err());
        assert!(check(&["127.0.0.0/8"], "::1").is_err());
        assert!(
            check(&["::/0"], "::ffff:127.0.0.1").is_err(),
            "it is dialled as IPv4, so an IPv6 range does not cover it"
        );
    }

    #[test]
    fn a_denied_range_wins_over_everything() {
        let policy = AddressPolicy::new(vec!["10.0.0.0/8".parse().unwrap(), "::/0".parse().unwrap()])
            .denying(vec!["10.1.0.0/16".parse().unwrap(), "8.8.8.8/32".parse().unwrap()]);
        let check = |address: &str| policy.check(address.parse().unwrap());
        assert_eq!((check("10.2.0.1"), check("1.1.1.1")), (Ok(()), Ok(())));
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "2002:a01:203::1", "8.8.8.8", "::8.8.8.8"] {
            let refused = check(address).unwrap_err();
            assert!(refused.is_denied(), "{address}");
            assert!(refused.to_string().ends_with("denies (deny_ranges)"), "{refused}");
        }
    }

    #[test]
    fn a_refusal_names_the_flag_that_allows_the_address() {
        assert_eq!(
            check(&[], "127.0.0.1").unwrap_err().to_string(),
            "127.0.0.1 is a loopback address; an operator can allow it with --allow-webhook-range 127.0.0.1/32"
        );
    }
}
