//! Where requests may go. A receiver's address comes from an operator, but what its name resolves
//! to comes from whoever runs that zone, and may change from one attempt to the next. So every
//! address is looked at each time, and a connection is only made to one that was.
//!
//! Addresses of cloud metadata services are never allowed: they hand out the machine's credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Metadata services: AWS and most others, ECS, EKS, Alibaba, Oracle, Azure, and AWS by IPv6.
const METADATA: [IpAddr; 8] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
];

/// Networks that are not the public internet, IPv4: this network, private, carrier-grade NAT,
/// loopback, link-local, protocol assignments, documentation, 6to4 relays, benchmarking,
/// multicast, reserved and broadcast.
const SPECIAL_V4: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// An address that requests may not go to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Hands out credentials.
    #[error("{0} is the address of a cloud metadata service: never allowed")]
    Metadata(IpAddr),
    /// Not public, and not among `allow_cidrs`.
    #[error("{0} is not a public address: allow its network in allow_cidrs if it is meant")]
    Private(IpAddr),
    /// The name has no addresses.
    #[error("the name has no address")]
    NoAddress,
}

/// Whether a request may go to `address`.
///
/// # Errors
/// Why not.
pub fn check(address: IpAddr, allowed: &[IpNet]) -> Result<(), Denied> {
    // An IPv4 address in IPv6 clothes is judged as what it leads to, and as what it is.
    for address in [Some(address), inner(address)].into_iter().flatten() {
        if METADATA.contains(&address) {
            return Err(Denied::Metadata(address));
        }
    }
    let target = inner(address).unwrap_or(address);
    if allowed
        .iter()
        .any(|net| net.contains(&target) || net.contains(&address))
    {
        return Ok(());
    }
    let public = match address {
        IpAddr::V4(v4) => public_v4(v4),
        IpAddr::V6(v6) => match inner(address) {
            Some(IpAddr::V4(v4)) => public_v4(v4),
            _ => public_v6(v6),
        },
    };
    if public {
        Ok(())
    } else {
        Err(Denied::Private(target))
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64, 6to4.
fn inner(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let parts = v6.segments();
    let v4 = |high: u16, low: u16| {
        let bits = (u32::from(high) << 16) | u32::from(low);
        Some(IpAddr::V4(Ipv4Addr::from_bits(bits)))
    };
    match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => None,
    }
}

fn public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(network, bits)| {
        let mask = u32::MAX << (32 - u32::from(*bits));
        address.to_bits() & mask == network.to_bits()
    })
}

/// Global unicast, but for documentation, Teredo and other protocol assignments.
fn public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let global = parts[0] & 0xe000 == 0x2000;
    let assigned = parts[0] == 0x2001 && parts[1] < 0x200;
    let documentation =
        (parts[0] == 0x2001 && parts[1] == 0xdb8) || (parts[0] == 0x3fff && parts[1] < 0x1000);
    global && !assigned && !documentation
}

/// The address a host is written as, if it is one: the resolver is not asked about those. The host
/// is that of a parsed URL, where decimal, hexadecimal and octal forms are gone.
pub fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// Resolves names to addresses that requests may go to.
#[derive(Debug, Clone)]
pub struct GuardedResolver {
    allowed: Vec<IpNet>,
}

impl GuardedResolver {
    /// Allows public addresses and those in `allowed`.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.allowed.clone();
        Box::pin(async move {
            // Port 0 stands for that of the URL.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let good = permitted(found, &allowed)?;
            Ok(Box::new(good.into_iter()) as Addrs)
        })
    }
}

/// Those of the addresses that are allowed.
///
/// # Errors
/// Where none is: why the first is not.
fn permitted(
    found: impl Iterator<Item = SocketAddr>,
    allowed: &[IpNet],
) -> Result<Vec<SocketAddr>, Denied> {
    let mut good = Vec::new();
    let mut denied = None;
    for address in found {
        match check(address.ip(), allowed) {
            Ok(()) => good.push(address),
            Err(reason) => {
                denied.get_or_insert(reason);
            }
        }
    }
    if good.is_empty() {
        return Err(denied.unwrap_or(Denied::NoAddress));
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(address: &str, allowed: &[&str]) -> &'static str {
        let allowed: Vec<IpNet> = allowed.iter().map(|net| net.parse().unwrap()).collect();
        match check(address.parse().unwrap(), &allowed) {
            Ok(()) => "ok",
            Err(Denied::Metadata(_)) => "metadata",
            Err(_) => "private",
        }
    }

    #[test]
    fn the_table() {
        for (address, verdict) in [
            ("93.184.216.34", "ok"),
            ("8.8.8.8", "ok"),
            ("172.32.0.1", "ok"),
            ("100.128.0.1", "ok"),
            ("2606:2800:220:1::1", "ok"),
            ("2001:4860:4860::8888", "ok"),
            ("0.0.0.0", "private"),
            ("10.1.2.3", "private"),
            ("100.64.0.1", "private"),
            ("127.0.0.1", "private"),
            ("127.255.255.254", "private"),
            ("169.254.1.1", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.1", "private"),
            ("192.0.2.1", "private"),
            ("192.88.99.1", "private"),
            ("192.168.1.1", "private"),
            ("198.18.0.1", "private"),
            ("198.19.255.255", "private"),
            ("198.51.100.1", "private"),
            ("203.0.113.1", "private"),
            ("224.0.0.1", "private"),
            ("240.0.0.1", "private"),
            ("255.255.255.255", "private"),
            ("::", "private"),
            ("::1", "private"),
            ("fe80::1", "private"),
            ("fec0::1", "private"),
            ("fc00::1", "private"),
            ("fd12::1", "private"),
            ("ff02::1", "private"),
            ("2001:db8::1", "private"),
            ("2001::1", "private"),
            ("3fff::1", "private"),
            ("100::1", "private"),
            // IPv4 in IPv6 clothes: mapped, compatible, translated, NAT64, local NAT64, 6to4.
            ("::ffff:127.0.0.1", "private"),
            ("::ffff:8.8.8.8", "ok"),
            ("::10.0.0.1", "private"),
            ("::ffff:0:10.0.0.1", "private"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b::8.8.8.8", "ok"),
            ("64:ff9b:1::192.168.0.1", "private"),
            ("2002:0a00:0001::1", "private"),
            ("2002:0808:0808::1", "ok"),
            ("169.254.169.254", "metadata"),
            ("169.254.170.2", "metadata"),
            ("100.100.100.200", "metadata"),
            ("192.0.0.192", "metadata"),
            ("168.63.129.16", "metadata"),
            ("fd00:ec2::254", "metadata"),
            ("::ffff:169.254.169.254", "metadata"),
            ("64:ff9b::169.254.169.254", "metadata"),
            ("2002:a9fe:a9fe::", "metadata"),
        ] {
            assert_eq!(judge(address, &[]), verdict, "{address}");
        }
    }

    #[test]
    fn a_private_network_can_be_allowed_a_metadata_service_cannot() {
        assert_eq!(judge("10.1.2.3", &["10.1.0.0/16"]), "ok");
        assert_eq!(judge("::ffff:10.1.2.3", &["10.1.0.0/16"]), "ok");
        assert_eq!(judge("10.2.2.3", &["10.1.0.0/16"]), "private");
        assert_eq!(judge("fd12::1", &["fd00::/8"]), "ok");
        for metadata in ["169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254"] {
            assert_eq!(
                judge(metadata, &["0.0.0.0/0", "::/0"]),
                "metadata",
                "{metadata}"
            );
        }
    }

    #[test]
    fn literals_are_seen_through_the_url() {
        for (url, address) in [
            ("https://127.0.0.1/", Some("127.0.0.1")),
            ("https://2130706433/", Some("127.0.0.1")),
            ("https://0x7f.1/", Some("127.0.0.1")),
            ("https://0177.0.0.1/", Some("127.0.0.1")),
            ("https://[::ffff:127.0.0.1]/", Some("::ffff:127.0.0.1")),
            ("https://localhost/", None),
            ("https://1.2.3.4.example/", None),
        ] {
            let url = reqwest::Url::parse(url).unwrap();
            let expected = address.map(|address| address.parse().unwrap());
            assert_eq!(literal(url.host_str().unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn a_name_with_mixed_addresses_leads_to_the_allowed_ones_only() {
        let found = ["10.0.0.1:0", "8.8.8.8:0"].map(|address| address.parse().unwrap());
        let good = permitted(found.into_iter(), &[]).unwrap();
        assert_eq!(good, ["8.8.8.8:0".parse().unwrap()]);
        let private = "10.0.0.1".parse().unwrap();
        assert_eq!(
            permitted(found.into_iter().take(1), &[]),
            Err(Denied::Private(private))
        );
        assert_eq!(permitted([].into_iter(), &[]), Err(Denied::NoAddress));
    }
}
