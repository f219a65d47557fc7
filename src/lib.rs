//! tailwater: one switch and one host, written as pure state machines, driven by AF_XDP, by a
//! capture, or by virtual time.
//!
//! | module | what it is |
//! |---|---|
//! | [`switch`], [`host`] | the two nodes: frames and the time in, frames out; no socket, thread or clock |
//! | [`wire`], [`frame`], [`mod@line`], [`pause`] | headers as checked views, frames and the stores that hold them, a port's line rate and the pauses it obeys |
//! | [`catch_up`] | how a sender returns to its plan after its driver was late |
//! | [`sim`] | virtual time: an event queue, links, stations |
//! | [`lab`] | topology files, network namespaces, and running their nodes by the gated or the free clock |
//! | [`replay`] | captures through a switch, and captures sent on an interface |
//! | [`xdp`] | AF_XDP: UMEM, rings, programs, ports |
//! | [`measure`] | histograms, latency measurement, reports |
//! | [`ledger`] | every frame accounted for, by name |
//!
//! [`node::Node`] is the contract between a node and whatever drives it, and [`frame::FrameStore`]
//! says what a frame is. The command `tailwater` is a thin layer in [`cli`].
//!
//! # An experiment of your own
//!
//! Two hosts on a switch of 10 Gb/s: one sends 1,000 frames at 100,000 a second, the other checks
//! them. Virtual time needs no root and gives the same result on every machine.
//!
//! ```
//! use tailwater::frame::SlabStore;
//! use tailwater::host::{ExpectedStream, Host, HostConfig, StreamConfig, StreamTarget};
//! use tailwater::lab::Device;
//! use tailwater::node::PortId;
//! use tailwater::sim::{LinkModel, Network, PortRef};
//! use tailwater::switch::{PortConfig, Switch, SwitchConfig};
//! use tailwater::time::{Duration, Time};
//! use tailwater::units::{AnyRate, FrameRate, Rate};
//! use tailwater::wire::MacAddr;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rate = Rate::from_gbps(10);
//! let [mac1, mac2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
//!
//! let mut h1 = HostConfig::new("h1", mac1, rate);
//! h1.ipv4 = Some(("10.0.0.1".parse()?, 24));
//! let target = StreamTarget { mac: mac2, ip: "10.0.0.2".parse()?, vlan: None };
//! let mut stream = StreamConfig::new(1, target, AnyRate::Frames(FrameRate::from_pps(100_000)));
//! stream.frames_max = 1_000;
//! // The hosts announce themselves first.
//! stream.start = Time::from_ns(10_000);
//! h1.streams.push(stream);
//! let mut h2 = HostConfig::new("h2", mac2, rate);
//! h2.ipv4 = Some(("10.0.0.2".parse()?, 24));
//! let ports = ["1", "2"].map(|name| PortConfig::new(name, MacAddr([2, 0, 0, 0, 1, 0]), rate));
//!
//! // The store is what the network's frames live in: here memory, under AF_XDP a UMEM.
//! let mut network: Network<Device, SlabStore> = Network::new(SlabStore::new(10_000));
//! let s1 = network.add(Switch::new(SwitchConfig::new("s1", ports.to_vec()))?.into(), 2);
//! let h1 = network.add(Host::new(&h1, &[])?.into(), 1);
//! let h2 = network.add(Host::new(&h2, &[ExpectedStream { id: 1 }])?.into(), 1);
//! for (host, port) in [(h1, 0), (h2, 1)] {
//!     let link = |name| LinkModel::new(name, Duration::from_us(1), 1);
//!     let host = PortRef { station: host, port: PortId(0) };
//!     let switch = PortRef { station: s1, port: PortId(port) };
//!     network.connect(host, switch, link("up"), link("down"));
//! }
//! network.run_until(Time::ZERO + Duration::from_ms(20));
//!
//! // 1,000 frames of the stream, and the announcements: nothing dropped, nothing left.
//! let books = network.ledger(s1);
//! books.check()?;
//! assert_eq!((books.drops.total(), books.queued), (0, 0));
//! assert_eq!(books.transmitted, books.received + books.replicated);
//! let received = network.node(h2).as_host().and_then(|h2| h2.streams_received().next());
//! let received = received.ok_or("no stream ends at h2")?;
//! assert_eq!((received.received, received.sequence.dropped, received.content_errors), (1_000, 0, 0));
//! // Two links of 1 us, and twice the wire time of 1,538 bytes at 10 Gb/s.
//! assert_eq!(received.delay_max, (Duration::from_us(1) + rate.time_of(1_538)) * 2);
//! # Ok(())
//! # }
//! ```

pub mod catch_up;
pub mod cli;
pub mod frame;
pub mod host;
pub mod lab;
pub mod ledger;
pub mod line;
pub mod measure;
pub mod node;
pub mod pause;
pub mod replay;
pub mod rng;
pub mod sim;
pub mod switch;
pub mod time;
pub mod units;
pub mod wire;
pub mod xdp;
