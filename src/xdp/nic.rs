//! What an interface can do for AF_XDP, and what it does that spoils frames.

use std::io;

use super::interface::{Interface, InterfaceState, carries_default_route};
use super::netns::NetNs;
use super::program;

/// An offload that changes frames between the stack and the wire. One end of a veth hands frames
/// over as the stack left them, so what hardware would have finished stays unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Its name to `ethtool -K`.
    pub name: &'static str,
    /// What a receiver on AF_XDP sees of it.
    pub effect: &'static str,
    get: u32,
    set: u32,
    /// A bit of the `ETHTOOL_GFLAGS` word; zero for an offload with a command of its own.
    flag: u32,
}

const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;

const fn flag(name: &'static str, effect: &'static str, flag: u32) -> Offload {
    Offload { name, effect, get: ETHTOOL_GFLAGS, set: ETHTOOL_SFLAGS, flag }
}

/// The offloads that corrupt frames for AF_XDP, by the numbers of `linux/ethtool.h`.
pub const HARMFUL: [Offload; 5] = [
    Offload {
        name: "tso",
        effect: "TCP arrives in frames larger than the MTU",
        get: 0x1e,
        set: 0x1f,
        flag: 0,
    },
    Offload {
        name: "tx",
        effect: "UDP and TCP arrive with unfinished checksums",
        get: 0x16,
        set: 0x17,
        flag: 0,
    },
    flag("txvlan", "VLAN tags are missing at the other end", 1 << 7),
    flag("rxvlan", "VLAN tags are missing here", 1 << 8),
    flag("lro", "frames arrive merged", 1 << 15),
];

/// An interface as [`inspect`] found it.
#[derive(Clone, Debug)]
pub struct Nic {
    /// Link and MTU.
    pub state: InterfaceState,
    /// Queues that can be bound.
    pub queues: u32,
    /// What the driver says of XDP; None when the kernel cannot tell (before 6.3).
    pub xdp: Option<NicXdp>,
    /// Those of [`HARMFUL`] that are on.
    pub harmful: Vec<Offload>,
    /// Whether the namespace's default route uses it.
    pub default_route: bool,
}

/// What a driver says of XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicXdp {
    /// Programs run in the driver.
    pub native: bool,
    /// AF_XDP without copies.
    pub zero_copy: bool,
    /// Descriptors of one frame without copies; 1 means no jumbo frames above a chunk.
    pub zero_copy_descriptors_max: u32,
    /// A program is attached now.
    pub attached: bool,
}

/// Looks at an interface.
///
/// # Errors
/// When there is no such interface or namespace.
pub fn inspect(netns: &NetNs, name: &str) -> io::Result<Nic> {
    netns.run(|| {
        let interface = Interface::open(name)?;
        let index = interface.index()?;
        let xdp = program::driver_features(index).ok().map(|have| NicXdp {
            native: have.native,
            zero_copy: have.zero_copy,
            zero_copy_descriptors_max: have.zero_copy_descriptors_max,
            attached: have.attached,
        });
        let is_on = |one: &Offload| {
            interface.ethtool_value(one.get, 0).is_some_and(|value| match one.flag {
                0 => value != 0,
                flag => value & flag != 0,
            })
        };
        Ok(Nic {
            state: interface.state(index),
            queues: interface.queues(),
            xdp,
            harmful: HARMFUL.into_iter().filter(is_on).collect(),
            default_route: carries_default_route(name),
        })
    })?
}

/// Turns off what of [`HARMFUL`] is on; gives the names of those that would not go off. Needs
/// `CAP_NET_ADMIN`. For both ends of a veth that tailwater made, before frames cross it.
///
/// # Errors
/// When there is no such interface or namespace.
pub fn turn_harmful_off(netns: &NetNs, name: &str) -> io::Result<Vec<&'static str>> {
    let on = inspect(netns, name)?.harmful;
    netns.run(|| {
        let interface = Interface::open(name)?;
        for one in &on {
            let value = match one.flag {
                0 => 0,
                flag => interface.ethtool_value(one.get, 0).unwrap_or(0) & !flag,
            };
            // Whether it worked shows when it is read again: `tx` may fail and still have effect.
            let _ = interface.ethtool_value(one.set, value);
        }
        io::Result::Ok(())
    })??;
    Ok(inspect(netns, name)?.harmful.into_iter().map(|one| one.name).collect())
}
