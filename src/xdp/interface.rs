//! An interface as its driver sees it: index, MTU, whether it is up and has a carrier.
//!
//! Asked through a socket that stays in the interface's namespace, so that a worker without any
//! capability and in another namespace can ask.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use super::sys;

/// What the link of a port is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Up, with a carrier.
    Up,
    /// Up, but the other end is not there or is down.
    NoCarrier,
    /// Set down.
    AdminDown,
    /// There is no such interface any more, or another one under its name.
    Vanished,
}

/// How an interface stood when it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// The link.
    pub link: LinkState,
    /// Largest layer-3 packet, in bytes; 0 when vanished.
    pub mtu_bytes: u32,
}

/// A named interface of the namespace in which this was opened.
#[derive(Debug)]
pub(crate) struct Interface {
    socket: OwnedFd,
    name: String,
}

impl Interface {
    /// Opens the way to ask about `name`, in the calling thread's namespace. It need not exist.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM)
            .or_else(|_| sys::socket(libc::AF_INET6, libc::SOCK_DGRAM))?;
        Ok(Self { socket, name: name.to_owned() })
    }

    fn request(&self, request: libc::Ioctl) -> io::Result<libc::__c_anonymous_ifr_ifru> {
        sys::interface_request(self.socket.as_fd(), request, &self.name)
    }

    pub(crate) fn index(&self) -> io::Result<u32> {
        let answer = self.request(libc::SIOCGIFINDEX)?;
        // SAFETY: the kernel wrote this member.
        let index = unsafe { answer.ifru_ifindex };
        u32::try_from(index).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Whether it is the namespace's loopback; false when it cannot be asked.
    pub(crate) fn is_loopback(&self) -> bool {
        let Ok(answer) = self.request(libc::SIOCGIFFLAGS) else { return false };
        // SAFETY: the kernel wrote this member.
        let flags = unsafe { answer.ifru_flags };
        i32::from(flags) & libc::IFF_LOOPBACK != 0
    }

    /// The state of the interface that had `index` when it was opened.
    pub(crate) fn state(&self, index: u32) -> InterfaceState {
        self.state_now(index).unwrap_or(InterfaceState { link: LinkState::Vanished, mtu_bytes: 0 })
    }

    fn state_now(&self, index: u32) -> io::Result<InterfaceState> {
        if self.index()? != index {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let answer = self.request(libc::SIOCGIFMTU)?;
        // SAFETY: the kernel wrote this member.
        let mtu = unsafe { answer.ifru_mtu };
        let answer = self.request(libc::SIOCGIFFLAGS)?;
        // SAFETY: the kernel wrote this member.
        let flags = i32::from(unsafe { answer.ifru_flags });
        let carrier = self.carrier().unwrap_or(flags & libc::IFF_RUNNING != 0);
        let link = match (flags & libc::IFF_UP != 0, carrier) {
            (false, _) => LinkState::AdminDown,
            (true, false) => LinkState::NoCarrier,
            (true, true) => LinkState::Up,
        };
        Ok(InterfaceState { link, mtu_bytes: u32::try_from(mtu).unwrap_or(0) })
    }

    /// Whether there is a carrier, by the driver: `IFF_RUNNING` may lag by a second.
    fn carrier(&self) -> Option<bool> {
        const ETHTOOL_GLINK: u32 = 0x0a;
        self.ethtool_value(ETHTOOL_GLINK, 0).map(|value| value != 0)
    }

    /// Runs an ethtool command that reads or sets one value; gives the value afterwards, or None
    /// when the driver or our capabilities do not allow it. Only for commands on one value.
    pub(crate) fn ethtool_value(&self, command: u32, data: u32) -> Option<u32> {
        /// `struct ethtool_value` of `linux/ethtool.h`.
        #[repr(C)]
        struct Value {
            command: u32,
            data: u32,
        }
        let mut value = Value { command, data };
        // SAFETY: `Value` is laid out as the structure of commands on one value.
        let asked = unsafe { sys::ethtool_request(self.socket.as_fd(), &self.name, &mut value) };
        asked.ok().map(|()| value.data)
    }

    /// The number of the clock that the interface stamps frames by; None when it has none.
    pub(crate) fn phc_index(&self) -> Option<u32> {
        /// `struct ethtool_ts_info` of `linux/ethtool.h`.
        #[repr(C)]
        #[derive(Default)]
        struct TsInfo {
            command: u32,
            so_timestamping: u32,
            phc_index: i32,
            tx_types: u32,
            tx_reserved: [u32; 3],
            rx_filters: u32,
            rx_reserved: [u32; 3],
        }
        const ETHTOOL_GET_TS_INFO: u32 = 0x41;
        let mut info = TsInfo { command: ETHTOOL_GET_TS_INFO, phc_index: -1, ..TsInfo::default() };
        // SAFETY: `TsInfo` is laid out as the structure of this command.
        let asked = unsafe { sys::ethtool_request(self.socket.as_fd(), &self.name, &mut info) };
        asked.ok().and_then(|()| u32::try_from(info.phc_index).ok())
    }

    /// Whether the hardware stamps every received frame now; None when the driver does not say.
    pub(crate) fn stamps_all_received(&self) -> Option<bool> {
        /// `struct hwtstamp_config` of `linux/net_tstamp.h`.
        #[repr(C)]
        #[derive(Default)]
        struct Config {
            flags: i32,
            tx_type: i32,
            rx_filter: i32,
        }
        const HWTSTAMP_FILTER_ALL: i32 = 1;
        let mut config = Config::default();
        let (socket, request) = (self.socket.as_fd(), libc::SIOCGHWTSTAMP);
        // SAFETY: `Config` is laid out as the structure of this request.
        let asked = unsafe { sys::interface_data(socket, request, &self.name, &mut config) };
        asked.ok().map(|()| config.rx_filter == HWTSTAMP_FILTER_ALL)
    }

    /// Receive queues that have a transmit queue of the same number; 1 when the driver does not say.
    pub(crate) fn queues(&self) -> u32 {
        /// `struct ethtool_channels` of `linux/ethtool.h`.
        #[repr(C)]
        #[derive(Default)]
        struct Channels {
            command: u32,
            max: [u32; 4],
            rx: u32,
            tx: u32,
            other: u32,
            combined: u32,
        }
        const ETHTOOL_GCHANNELS: u32 = 0x3c;
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        // SAFETY: `Channels` is laid out as the structure of this command.
        let asked = unsafe { sys::ethtool_request(self.socket.as_fd(), &self.name, &mut channels) };
        match asked {
            Ok(()) => (channels.combined + channels.rx.min(channels.tx)).max(1),
            Err(_) => 1,
        }
    }
}

/// Whether the calling thread's namespace reaches the rest of the world through `name`.
pub(crate) fn carries_default_route(name: &str) -> bool {
    // `/proc/net` is that of the process's first thread.
    let v4 = fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap_or_default();
    is_default_v4(&v4, name) || is_default_v6(&v6, name)
}

fn is_default_v4(table: &str, name: &str) -> bool {
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 7 && fields[0] == name && fields[1] == "00000000" && fields[7] == "00000000"
    })
}

fn is_default_v6(table: &str, name: &str) -> bool {
    // The kernel keeps an entry on `lo` that rejects what has no route.
    const RTF_REJECT: u32 = 0x200;
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let flags = fields.get(8).and_then(|flags| u32::from_str_radix(flags, 16).ok());
        fields.len() == 10
            && fields[9] == name
            && fields[0].bytes().all(|byte| byte == b'0')
            && fields[1] == "00"
            && flags.is_none_or(|flags| flags & RTF_REJECT == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_is_found_in_both_families() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
                  eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                  eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert!(is_default_v4(v4, "eth0"));
        assert!(!is_default_v4(v4, "eth1"));
        let v6 = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                  fe800000000000000000000000000001 00000400 00000001 00000000 00000003     wan0\n\
                  fe800000000000000000000000000000 40 00000000000000000000000000000000 00 \
                  00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth1\n\
                  00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                  00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
        assert!(is_default_v6(v6, "wan0"));
        assert!(!is_default_v6(v6, "lo"), "it rejects");
        assert!(!is_default_v6(v6, "eth1"));
    }

    #[test]
    fn an_interface_that_is_not_there_has_vanished() {
        let interface = Interface::open("tw-no-such").expect("a socket");
        assert_eq!(interface.state(7).link, LinkState::Vanished);
        let loopback = Interface::open("lo").expect("a socket");
        assert_eq!(loopback.index().expect("there is one"), 1);
    }
}
