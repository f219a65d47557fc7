//! The tables of hosts, and the addresses of those that have none of their own.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use toml::Spanned;

use super::error::Issue;
use super::file::{HostKindName, HostTable, Network};
use super::resolve::{Kind, LINK_RATE, Resolver, Uses, address, plain, value};
use super::{Attachment, HostKind, HostNode, NodeId};
use crate::host::HostConfig;
use crate::host::config::QUEUE_FRAMES_MAX;
use crate::line::ETHERNET_OVERHEAD_BYTES;
use crate::time::Time;
use crate::wire::MacAddr;

/// Frames of a host that wait for its line, unless it says otherwise.
const HOST_QUEUE_FRAMES: u32 = 1_024;

impl<'a> Resolver<'a> {
    pub(super) fn hosts(&mut self, uses: &Uses) -> Vec<HostNode> {
        let tables = self.host_names.clone();
        let defaults = &self.file.defaults.host;
        let addresses = self.addresses(&tables);
        let mut hosts = Vec::new();
        for (index, (name, table)) in tables.into_iter().enumerate() {
            let port = self.host_port(index);
            let fits = !port.is_empty()
                && port.len() <= 15
                && port != "lo"
                && port.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if let Some(written) = table.port.as_ref().filter(|_| !fits) {
                let message = format!("`{port}` cannot name a port");
                self.issue(
                    Issue::new(written.span(), message).help("letters, digits and _, at most 15"),
                );
            }
            let used = uses.get(&(NodeId::Host(index), port.to_owned()));
            if used.is_none() && self.links_are_whole {
                let message = format!("host `{}` has no link", name.get_ref());
                self.issue(Issue::new(name.span(), message).help("add a [[link]] for it"));
            }
            let queues = table.queues.as_ref().or(defaults.queues.as_ref());
            if let Some(queues) = queues.filter(|queues| !(1..=64).contains(queues.get_ref())) {
                self.issue(Issue::new(queues.span(), "a host has 1 to 64 queues"));
            }
            let kind = table.kind.or(defaults.kind);
            let commands = table.commands.as_ref();
            if let Some(commands) = commands.filter(|_| kind != Some(HostKindName::Kernel)) {
                let message = "commands are for kernel hosts: tailwater runs this one itself";
                self.issue(Issue::new(commands.span(), message).help("kind = \"kernel\""));
            }
            let frames = table.queue_frames.as_ref().or(defaults.queue_frames.as_ref());
            let holds = 1..=QUEUE_FRAMES_MAX;
            if let Some(frames) = frames.filter(|frames| !holds.contains(frames.get_ref())) {
                let message = format!("a host's queue holds 1 to {QUEUE_FRAMES_MAX} frames");
                self.issue(Issue::new(frames.span(), message));
            }
            let lossless = table.lossless.as_ref().or(defaults.lossless.as_ref());
            let (mac, ipv4, ipv6) = addresses[index];
            let config = HostConfig {
                name: name.get_ref().clone(),
                port_name: port.to_owned(),
                mac,
                ipv4: Some((ipv4.address, ipv4.prefix)),
                ipv6: Some((ipv6.address, ipv6.prefix)),
                rate: used.map_or(LINK_RATE, |used| used.rate),
                mtu_bytes: self.mtu(table.mtu.as_ref()),
                overhead_bytes: ETHERNET_OVERHEAD_BYTES,
                queue_frames_max: plain(frames).unwrap_or(HOST_QUEUE_FRAMES),
                announce_at: Time::ZERO,
                lossless: self.priorities(lossless),
                obeys_pause: table.obeys_pause.or(defaults.obeys_pause).unwrap_or(false),
                streams: Vec::new(),
                storms: Vec::new(),
                seed: self.seed,
            };
            hosts.push(HostNode {
                config,
                kind: match kind {
                    Some(HostKindName::Kernel) => HostKind::Kernel,
                    Some(HostKindName::Agent) | None => HostKind::Agent,
                },
                attachment: used.map_or(Attachment::None, |used| used.attachment),
                core: plain(table.core.as_ref()),
                queues: plain(queues).unwrap_or(1),
                gateways: table
                    .gateway
                    .as_ref()
                    .map(|all| all.get_ref().0.clone())
                    .unwrap_or_default(),
                commands: table
                    .commands
                    .as_ref()
                    .map(|all| all.get_ref().clone())
                    .unwrap_or_default(),
            });
        }
        hosts
    }

    /// The addresses of each host: as written, or the next that nothing else has.
    fn addresses(
        &mut self,
        tables: &[(&'a Spanned<String>, &'a HostTable)],
    ) -> Vec<(MacAddr, Network<Ipv4Addr>, Network<Ipv6Addr>)> {
        let mut macs = BTreeMap::new();
        let mut v4 = BTreeMap::new();
        let mut v6 = BTreeMap::new();
        for (_, table) in tables {
            if let Some(mac) = &table.mac {
                if mac.get_ref().0.is_group() || mac.get_ref().0 == MacAddr::default() {
                    self.issue(Issue::new(mac.span(), "a host's address names one station"));
                }
                self.once(&mut macs, mac.get_ref().0, mac.span());
            }
            if let Some(net) = &table.ipv4 {
                let address = net.get_ref().0.address;
                if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
                    self.issue(Issue::new(net.span(), "a host's address names one station"));
                }
                self.once(&mut v4, address, net.span());
            }
            if let Some(net) = &table.ipv6 {
                let address = net.get_ref().0.address;
                if address.is_unspecified() || address.is_multicast() {
                    self.issue(Issue::new(net.span(), "a host's address names one station"));
                }
                self.once(&mut v6, address, net.span());
            }
        }
        let mut free_v4 = (1_u32..).map(|n| Ipv4Addr::from_bits(0x0a4d_0000 + n));
        let mut free_v6 = (1_u128..).map(|n| Ipv6Addr::from_bits((0xfd77_u128 << 112) + n));
        let mut assigned = Vec::new();
        for (index, (_, table)) in tables.iter().enumerate() {
            // A switch's index and the port fit an address of this shape; hosts use port 0.
            let mac = value(table.mac.as_ref()).unwrap_or_else(|| {
                let mut port = 0;
                loop {
                    let mac = address(Kind::Host, index, port);
                    if !macs.contains_key(&mac) {
                        break mac;
                    }
                    port += 1;
                }
            });
            let ipv4 = value(table.ipv4.as_ref()).unwrap_or_else(|| Network {
                address: free_v4.find(|a| !v4.contains_key(a)).unwrap_or(Ipv4Addr::LOCALHOST),
                prefix: 16,
            });
            let ipv6 = value(table.ipv6.as_ref()).unwrap_or_else(|| Network {
                address: free_v6.find(|a| !v6.contains_key(a)).unwrap_or(Ipv6Addr::LOCALHOST),
                prefix: 64,
            });
            assigned.push((mac, ipv4, ipv6));
        }
        assigned
    }

    fn once<A: Ord + std::fmt::Display>(
        &mut self,
        taken: &mut BTreeMap<A, Range<usize>>,
        address: A,
        span: Range<usize>,
    ) {
        if let Some(first) = taken.get(&address) {
            let issue = Issue::new(span, format!("two hosts have the address {address}"))
                .label("again here")
                .other(first.clone(), "first here");
            self.issue(issue);
        } else {
            taken.insert(address, span);
        }
    }
}
