//! What the router tells the source of a packet that it drops.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::config::RouterAddress;
use super::table::is_link_local;
use super::{Adjacency, Router, Target};
use crate::node::PortId;
use crate::time::Time;
use crate::wire::icmp_error::{self, IcmpError};

/// Bytes of the longest error.
pub const ERROR_BYTES_MAX: usize = icmp_error::IPV6_BYTES_MAX;

/// How an error leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a member of a group.
    Group(u32),
    /// To the station it is for.
    Direct(Adjacency),
}

impl Router {
    /// Writes an ICMP packet about the IP packet `quoted`, which came by `port`, at the start of
    /// `buffer` ([`ERROR_BYTES_MAX`] suffice), and gives its way and length. None when there is to be
    /// no error: about another error, to a source that is none, without a way back, without an
    /// address of this node to come from, or beyond the rate.
    pub fn error(
        &mut self,
        now: Time,
        port: PortId,
        error: IcmpError,
        quoted: &[u8],
        buffer: &mut [u8],
    ) -> Option<(Way, usize)> {
        let is_ipv6 = quoted.first()? >> 4 == 6;
        let may_answer = if is_ipv6 {
            icmp_error::may_answer_ipv6(quoted, error)
        } else {
            icmp_error::may_answer_ipv4(quoted)
        };
        if !may_answer {
            return None;
        }
        let (way, to) = if is_ipv6 {
            let to = Ipv6Addr::from(*quoted.get(8..24)?.first_chunk::<16>()?);
            (self.way_back(port, to.into(), self.ipv6.find(to.to_bits()))?, IpAddr::from(to))
        } else {
            let to = Ipv4Addr::from(*quoted.get(12..16)?.first_chunk::<4>()?);
            (self.way_back(port, to.into(), self.ipv4.find(to.to_bits()))?, IpAddr::from(to))
        };
        let out = match way {
            Way::Group(group) => self.members(group).first()?.port,
            Way::Direct(adjacency) => adjacency.port,
        };
        let from = self.source(&[port, out], to)?;
        if !self.errors.take(now) {
            self.errors_suppressed += 1;
            return None;
        }
        let written = match (from, to) {
            (IpAddr::V6(from), IpAddr::V6(to)) => error.emit_ipv6(from, to, quoted, buffer),
            (IpAddr::V4(from), IpAddr::V4(to)) => error.emit_ipv4(from, to, quoted, buffer),
            _ => return None,
        };
        Some((way, written.ok()?))
    }

    fn way_back(&self, port: PortId, to: IpAddr, found: Option<u32>) -> Option<Way> {
        if is_link_local(to) {
            let here = |(address, adjacency): &&(IpAddr, Adjacency)| {
                *address == to && adjacency.port == port
            };
            return self.link_local.iter().find(here).map(|(_, adjacency)| Way::Direct(*adjacency));
        }
        match found.map(Target::unpack) {
            Some(Target::Group(group)) => Some(Way::Group(group)),
            _ => None,
        }
    }

    /// The address that an error to `to` comes from: one of the first of `ports` that has one, which
    /// is the port that the packet came by, as Linux has it; else another one.
    fn source(&self, ports: &[PortId], to: IpAddr) -> Option<IpAddr> {
        let link_local = is_link_local(to);
        let fits = |own: &&RouterAddress| {
            own.address.is_ipv4() == to.is_ipv4() && is_link_local(own.address) == link_local
        };
        let of = |port: &PortId| self.addresses.iter().find(|own| own.port == *port && fits(own));
        let of_any = || self.addresses.iter().find(fits).filter(|_| !link_local);
        ports.iter().find_map(of).or_else(of_any).map(|own| own.address)
    }
}
