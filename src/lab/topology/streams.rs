//! Streams, faults and expectations of a topology file.

use super::error::Issue;
use super::file::{ArrivalsName, FaultTable, StreamTable};
use super::resolve::{Resolver, value};
use super::value::{OneOrMany, Q, S};
use super::{Attachment, Fault, FaultAction, HostKind, HostNode, Link, NodeId, Stream, SwitchNode};
use crate::host::config::SEGMENTS_MAX;
use crate::host::{Arrivals, StreamConfig, StreamTarget};
use crate::lab::expect::Expectation;
use crate::switch::{Trust, VlanMode};
use crate::time::{Duration, Time};
use crate::units::AnyRate;
use crate::wire::MacAddr;

/// UDP destination port of streams that do not say.
const DESTINATION_PORT: u16 = 7_701;
/// UDP source port of the first stream that does not say; the next ones follow.
const SOURCE_PORT: u16 = 49_152;

/// Resolves every stream table, and gives each sender its own.
pub(super) fn streams(
    resolver: &mut Resolver<'_>,
    hosts: &mut [HostNode],
    switches: &[SwitchNode],
    links: &[Link],
    run: Option<Duration>,
) -> Vec<Stream> {
    let file = resolver.file;
    let mut streams = Vec::new();
    for table in &file.stream {
        let senders = stations(resolver, &table.from);
        let receivers = stations(resolver, &table.to);
        for from in senders.iter().filter(|from| hosts[**from].kind == HostKind::Kernel) {
            let name = &hosts[*from].config.name;
            resolver.issue(
                Issue::new(
                    table.from.span(),
                    format!("`{name}` is a kernel host and sends no stream"),
                )
                .help("set kind = \"agent\", or run a program with `tailwater lab exec`"),
            );
        }
        let checked = shape(resolver, table, run);
        if senders.len() == 1 && senders == receivers {
            resolver.issue(Issue::new(table.to.span(), "a stream goes to another host"));
        }
        for from in &senders {
            for to in receivers.iter().filter(|to| *to != from) {
                let untagged = vlan_of(&hosts[*from], switches, links);
                let reaches = vlan_of(&hosts[*to], switches, links);
                let next = next_hop(resolver, table, &hosts[*from], &hosts[*to], switches);
                let is_bridged = next.is_none() && table.vlan.is_none();
                let apart = untagged.zip(reaches).filter(|(a, b)| a != b && is_bridged);
                if let Some((a, b)) = apart {
                    let (from, to) = (&hosts[*from].config.name, &hosts[*to].config.name);
                    let message = format!("`{from}` is in VLAN {a} and `{to}` in VLAN {b}");
                    resolver.issue(Issue::new(table.to.span(), message));
                }
                let id = u32::try_from(streams.len() + 1).unwrap_or(u32::MAX);
                let target = target(table, &hosts[*to], next);
                let mut config = stream_config(id, target, &checked, table);
                config.priority = priority(&hosts[*from], &config, switches, links);
                size(resolver, table, &config, &hosts[*from], &hosts[*to]);
                hosts[*from].config.streams.push(config.clone());
                streams.push(Stream { from: *from, to: *to, config });
            }
        }
    }
    streams
}

/// The hosts that `from` or `to` names.
fn stations(resolver: &mut Resolver<'_>, names: &S<OneOrMany<String>>) -> Vec<usize> {
    let mut found = Vec::new();
    if names.get_ref().0.is_empty() {
        resolver.issue(Issue::new(names.span(), "name at least one host"));
    }
    for name in &names.get_ref().0 {
        match resolver.node(name, names.span()) {
            Some(NodeId::Host(host)) if found.contains(&host) => {
                resolver.issue(Issue::new(names.span(), format!("`{name}` is named twice")));
            }
            Some(NodeId::Host(host)) => found.push(host),
            Some(NodeId::Switch(_)) => {
                let message = format!("`{name}` is a switch; streams run between hosts");
                resolver.issue(Issue::new(names.span(), message));
            }
            None => {}
        }
    }
    found
}

/// The VLAN of a host's untagged frames, when it hangs on a switch that has one for them.
fn vlan_of(host: &HostNode, switches: &[SwitchNode], links: &[Link]) -> Option<u16> {
    let Attachment::Link(link, end) = host.attachment else { return None };
    let far = &links[link].ends[1 - end];
    let NodeId::Switch(switch) = far.node else { return None };
    match &switches[switch].config.ports.get(far.port.index())?.vlan {
        VlanMode::Access(vlan) => Some(*vlan),
        VlanMode::Trunk { native, .. } => *native,
    }
}

/// The priority under which a host sends a stream: what the switch at the other end of its link makes
/// of the same fields, or without one the PCP, or the upper three bits of the DSCP.
fn priority(host: &HostNode, stream: &StreamConfig, switches: &[SwitchNode], links: &[Link]) -> u8 {
    let dscp = usize::from(stream.dscp & 63);
    let pcp = stream.target.vlan.map(|(_, pcp)| usize::from(pcp & 7));
    let far = match host.attachment {
        Attachment::Link(link, end) => Some(&links[link].ends[1 - end]),
        Attachment::External(_) | Attachment::None => None,
    };
    let Some((NodeId::Switch(switch), far)) = far.map(|far| (far.node, far)) else {
        return pcp.and_then(|pcp| u8::try_from(pcp).ok()).unwrap_or(stream.dscp >> 3) & 7;
    };
    let config = &switches[switch].config;
    let Some(port) = config.ports.get(far.port.index()) else { return 0 };
    match (port.trust, pcp) {
        (Trust::Pcp, Some(pcp)) => config.pcp_to_priority[pcp],
        (Trust::Dscp, _) => config.dscp_to_priority[dscp],
        (Trust::Pcp | Trust::Port, _) => port.default_priority,
    }
}

/// What all streams of one table have in common.
struct Shape {
    rate: AnyRate,
    frame_bytes: u32,
    start: Time,
    stop: Time,
    frames_max: u64,
    arrivals: Arrivals,
}

fn shape(resolver: &mut Resolver<'_>, table: &StreamTable, run: Option<Duration>) -> Shape {
    let defaults = &resolver.file.defaults.stream;
    let rate = table.rate.as_ref().or(defaults.rate.as_ref());
    match rate {
        None => resolver.issue(
            Issue::new(table.from.span(), "this stream has no rate")
                .help("add rate = \"1Gbps\" or \"100Kpps\""),
        ),
        Some(rate) => {
            let zero = match rate.get_ref().0 {
                AnyRate::Bits(rate) => rate.as_bps() == 0,
                AnyRate::Frames(rate) => rate.as_milli_pps() == 0,
            };
            if zero {
                resolver.issue(Issue::new(rate.span(), "a rate is above zero"));
            }
        }
    }
    let start = value(table.start.as_ref().or(defaults.start.as_ref())).unwrap_or_default();
    if let (Some(stop), Some(_)) = (&table.stop, &table.duration) {
        resolver.issue(Issue::new(stop.span(), "give `stop` or `duration`, not both"));
    }
    let frames = table.frames.as_ref().or(defaults.frames.as_ref());
    let lasts = table.duration.as_ref().or(defaults.duration.as_ref());
    let stop = match (&table.stop, lasts) {
        (Some(stop), _) => {
            if stop.get_ref().0 <= start {
                let message = format!("it stops at {} but starts at {start}", stop.get_ref().0);
                resolver.issue(Issue::new(stop.span(), message));
            }
            Some(stop.get_ref().0)
        }
        (None, Some(lasts)) => Some(start + lasts.get_ref().0),
        (None, None) => run,
    };
    if stop.is_none() && frames.is_none() {
        resolver.issue(
            Issue::new(table.from.span(), "this stream never ends")
                .help("give it frames, duration or stop, or give [run] a duration"),
        );
    }
    let rate = value(rate).unwrap_or(AnyRate::Bits(crate::units::Rate::from_gbps(1)));
    let frame_bytes = table.frame_bytes.as_ref().or(defaults.frame_bytes.as_ref());
    Shape {
        rate,
        frame_bytes: frame_bytes.map_or(1_514, |bytes| bytes.get_ref().0),
        start: Time::from_ps(start.as_ps()),
        stop: stop.map_or(Time::NEVER, |stop| Time::from_ps(stop.as_ps())),
        frames_max: frames.map_or(u64::MAX, |frames| *frames.get_ref()),
        arrivals: match table.arrivals.or(defaults.arrivals) {
            Some(ArrivalsName::Poisson) => Arrivals::Poisson,
            Some(ArrivalsName::Constant) | None => Arrivals::Constant,
        },
    }
}

/// The router that a stream's frames go to first: one with a path, or to another network, from a host
/// with a gateway.
fn next_hop(
    resolver: &mut Resolver<'_>,
    table: &StreamTable,
    from: &HostNode,
    to: &HostNode,
    switches: &[SwitchNode],
) -> Option<MacAddr> {
    let is_ipv6 = table.ip.as_ref().is_some_and(|ip| *ip.get_ref() == 6);
    let is_far = match (is_ipv6, from.config.ipv4, to.config.ipv4, from.config.ipv6, to.config.ipv6)
    {
        (false, Some((own, len)), Some((other, _)), _, _) => {
            !super::router::is_near(own.into(), len, other.into())
        }
        (true, _, _, Some((own, len)), Some((other, _))) => {
            !super::router::is_near(own.into(), len, other.into())
        }
        _ => false,
    };
    let needs_ipv6 = is_ipv6 || table.segments.is_some();
    let mut gateways = from.gateways.iter().filter(|gateway| gateway.is_ipv6() == needs_ipv6);
    if table.segments.is_none() && !is_far {
        return None;
    }
    let gateway = gateways.next();
    if let (None, Some(path)) = (gateway, &table.segments) {
        let message = format!("`{}` has no IPv6 gateway to send a path to", from.config.name);
        resolver.issue(Issue::new(path.span(), message).help("add gateway to its table"));
    }
    // A gateway that is none was refused with its host.
    gateway.and_then(|gateway| super::router::router_mac(switches, *gateway))
}

fn target(table: &StreamTable, to: &HostNode, next_hop: Option<MacAddr>) -> StreamTarget {
    let v6 = table.ip.as_ref().is_some_and(|ip| *ip.get_ref() == 6);
    let v4 = to.config.ipv4.map(|(address, _)| address.into());
    let v6 = to.config.ipv6.filter(|_| v6).map(|(address, _)| address.into());
    let pcp = table.pcp.as_ref().map_or(0, |pcp| *pcp.get_ref());
    StreamTarget {
        mac: next_hop.unwrap_or(to.config.mac),
        // Every host has addresses of both families.
        ip: v6.or(v4).unwrap_or(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
        vlan: table.vlan.as_ref().map(|vlan| (*vlan.get_ref(), pcp)),
    }
}

fn stream_config(
    id: u32,
    target: StreamTarget,
    shape: &Shape,
    table: &StreamTable,
) -> StreamConfig {
    // Streams that do not say take ports in turn, so that flows of one pair differ.
    let turn = u16::try_from((id - 1) % 16_384).unwrap_or(0);
    StreamConfig {
        id,
        target,
        source_port: table.source_port.as_ref().map_or(SOURCE_PORT + turn, |port| *port.get_ref()),
        destination_port: table
            .destination_port
            .as_ref()
            .map_or(DESTINATION_PORT, |port| *port.get_ref()),
        dscp: table.dscp.as_ref().map_or(0, |dscp| *dscp.get_ref()),
        priority: 0,
        ecn: table.ecn.as_ref().map_or(0, |ecn| *ecn.get_ref()),
        segments: table.segments.as_ref().map(|path| path.get_ref().0.clone()).unwrap_or_default(),
        frame_bytes: shape.frame_bytes,
        rate: shape.rate,
        arrivals: shape.arrivals,
        start: shape.start,
        stop: shape.stop,
        frames_max: shape.frames_max,
    }
}

/// Checks the header fields and that the frame fits both ends.
fn size(
    resolver: &mut Resolver<'_>,
    table: &StreamTable,
    config: &StreamConfig,
    from: &HostNode,
    to: &HostNode,
) {
    if let Some(ip) = table.ip.as_ref().filter(|ip| ![4, 6].contains(ip.get_ref())) {
        resolver.issue(Issue::new(ip.span(), "ip is 4 or 6"));
    }
    if let Some(dscp) = table.dscp.as_ref().filter(|dscp| *dscp.get_ref() > 63) {
        resolver.issue(Issue::new(dscp.span(), "a DSCP is 0 to 63"));
    }
    if let Some(pcp) = table.pcp.as_ref().filter(|pcp| *pcp.get_ref() > 7) {
        resolver.issue(Issue::new(pcp.span(), "a PCP is 0 to 7"));
    }
    if let Some(ecn) = table.ecn.as_ref().filter(|ecn| *ecn.get_ref() > 3) {
        resolver.issue(Issue::new(ecn.span(), "an ECN field is 0 to 3"));
    }
    if let Some(path) = table.segments.as_ref().filter(|p| p.get_ref().0.len() > SEGMENTS_MAX) {
        let message = format!("a path has at most {SEGMENTS_MAX} segments");
        let help = "one address holds several uSIDs";
        resolver.issue(Issue::new(path.span(), message).help(help));
    }
    match (&table.vlan, &table.pcp) {
        (Some(vlan), _) => {
            resolver.vlan_id(vlan);
        }
        (None, Some(pcp)) => {
            let message = "a PCP needs a VLAN tag to stand in";
            resolver.issue(Issue::new(pcp.span(), message).help("add vlan = 1"));
        }
        (None, None) => {}
    }
    let defaults = resolver.file.defaults.stream.frame_bytes.as_ref();
    let span = table.frame_bytes.as_ref().or(defaults);
    let span = span.map_or_else(|| table.from.span(), toml::Spanned::span);
    let tag = if table.vlan.is_some() { 4 } else { 0 };
    let least = u32::try_from(config.headers_bytes()).unwrap_or(u32::MAX);
    let mtu = from.config.mtu_bytes.min(to.config.mtu_bytes);
    let most = mtu + 14 + tag;
    if !(least..=most).contains(&config.frame_bytes) {
        let message = format!("a frame of {} bytes does not fit this stream", config.frame_bytes);
        resolver.issue(
            Issue::new(span, message)
                .help(format!("{least} (its headers, no FCS) to {most} (MTU {mtu} and Ethernet)")),
        );
    }
}

/// Resolves every fault, by time.
pub(super) fn faults(resolver: &mut Resolver<'_>, links: &[Link]) -> Vec<Fault> {
    let file = resolver.file;
    let mut faults = Vec::new();
    for spanned in &file.fault {
        let table = spanned.get_ref();
        let name = table.link.get_ref();
        let link = links
            .iter()
            .position(|link| link.name == *name || link.ends.iter().any(|end| end.name == *name));
        if link.is_none() {
            let message = format!("no link has an end `{name}`");
            resolver.issue(Issue::new(table.link.span(), message).help("NODE:PORT of either end"));
        }
        let actions = actions(resolver, table);
        if actions.is_empty() {
            resolver.issue(
                Issue::new(table.at.span(), "this fault does nothing")
                    .help("add down = true, up = true, loss, corrupt, delay, jitter or reorder"),
            );
        }
        let at = Time::from_ps(table.at.get_ref().0.as_ps());
        let link = link.unwrap_or(0);
        faults.extend(actions.into_iter().map(|action| Fault { at, link, action }));
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn actions(resolver: &mut Resolver<'_>, table: &FaultTable) -> Vec<FaultAction> {
    let mut actions = Vec::new();
    for (flag, action) in [(&table.down, FaultAction::Down), (&table.up, FaultAction::Up)] {
        match flag {
            Some(flag) if *flag.get_ref() => actions.push(action),
            Some(flag) => resolver.issue(
                Issue::new(flag.span(), "false says nothing here")
                    .help("use down = true or up = true"),
            ),
            None => {}
        }
    }
    if let (Some(down), Some(up)) = (&table.down, &table.up) {
        let issue = Issue::new(up.span(), "a link goes down or up, not both");
        resolver.issue(issue.other(down.span(), "down here"));
    }
    for span in [&table.delay, &table.jitter, &table.reorder_by] {
        resolver.delay_fits(span.as_ref());
    }
    fn set<T: Copy>(
        actions: &mut Vec<FaultAction>,
        quantity: Option<&Q<T>>,
        make: fn(T) -> FaultAction,
    ) {
        actions.extend(value(quantity).map(make));
    }
    set(&mut actions, table.loss.as_ref(), FaultAction::Loss);
    set(&mut actions, table.corrupt.as_ref(), FaultAction::Corrupt);
    set(&mut actions, table.delay.as_ref(), FaultAction::Delay);
    set(&mut actions, table.jitter.as_ref(), FaultAction::Jitter);
    set(&mut actions, table.reorder.as_ref(), FaultAction::Reorder);
    set(&mut actions, table.reorder_by.as_ref(), FaultAction::ReorderBy);
    actions
}

/// Reads every expectation; an error points into its text.
pub(super) fn expectations(resolver: &mut Resolver<'_>) -> Vec<Expectation> {
    let file = resolver.file;
    let mut expectations = Vec::new();
    for table in &file.expect {
        match Expectation::parse(table.value.get_ref(), table.is.get_ref()) {
            Ok(expectation) => expectations.push(expectation),
            Err(error) => {
                let text = if error.in_comparison { &table.is } else { &table.value };
                let span = text.span();
                // The span covers the quotes; an offset into plain text lies one byte behind its start.
                let at = (span.start + 1 + error.offset).min(span.end.saturating_sub(1));
                let rest = at..span.end.saturating_sub(1).max(at);
                resolver.issue(Issue::new(rest, error.message));
            }
        }
    }
    expectations
}
