//! The steering program: loading it, attaching it, and the map of sockets that it steers into.

use std::ffi::c_void;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;
use std::str::FromStr;

use libbpf_rs::libbpf_sys;
use libbpf_rs::{Map, MapCore as _, MapFlags, Object, ObjectBuilder};

use super::stamp::RxStamps;

/// The compiled program, without a call that ties it to one interface.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));
/// The same with stamps by the driver.
static OBJECT_HARDWARE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer_hardware.bpf.o"));

/// Which frames of an interface come to us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// Every frame.
    #[default]
    All,
    /// Those that match one of these; the kernel's stack gets the rest.
    Matches(Vec<Match>),
}

/// One kind of frame to steer. VLAN tags are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The EtherType behind the tags.
    EtherType(u16),
    /// The UDP destination port, over IPv4 or IPv6, of datagrams that are not fragments.
    UdpPort(u16),
    /// IPv6 destinations that begin with this.
    Ipv6Block {
        /// The block's address.
        address: Ipv6Addr,
        /// How many of its bits count, at most 128.
        prefix_bits: u8,
    },
}

impl FromStr for Match {
    type Err = String;

    /// Reads `ethertype=0x8915`, `udp=4791` or `ipv6=fcbb:bb00::/32`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not ethertype=0xHHHH, udp=PORT or ipv6=ADDRESS/BITS");
        let (kind, value) = text.split_once('=').ok_or_else(wrong)?;
        match kind {
            "ethertype" => {
                let digits = value.strip_prefix("0x").ok_or_else(wrong)?;
                u16::from_str_radix(digits, 16).map(Self::EtherType).map_err(|_| wrong())
            }
            "udp" => value.parse().map(Self::UdpPort).map_err(|_| wrong()),
            "ipv6" => {
                let (address, bits) = value.split_once('/').ok_or_else(wrong)?;
                let address = address.parse().map_err(|_| wrong())?;
                let prefix_bits =
                    bits.parse().ok().filter(|bits| *bits <= 128).ok_or_else(wrong)?;
                Ok(Self::Ipv6Block { address, prefix_bits })
            }
            _ => Err(wrong()),
        }
    }
}

/// How a program should be attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// In the driver, or in the stack when the driver cannot.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// In the stack.
    Generic,
}

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before an skb exists.
    Native,
    /// In the stack, on skbs.
    Generic,
}

impl XdpMode {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// The program on one interface. Dropping it detaches, as does the end of the process, however it
/// ends: nothing is pinned, and a `bpf_link` lives as long as its descriptor.
#[derive(Debug)]
pub struct Attachment {
    link: OwnedFd,
    sockets: OwnedFd,
    mode: XdpMode,
    stamps: RxStamps,
}

const FLAGS_SKB_MODE: u32 = 1 << 1;
const FLAGS_DRV_MODE: u32 = 1 << 2;

impl Attachment {
    /// Loads the program for `steering` and attaches it to the interface of that index in the
    /// calling thread's namespace.
    pub(crate) fn new(
        ifindex: u32,
        steering: &Steering,
        attach: Attach,
        stamps: RxStamps,
    ) -> io::Result<Self> {
        // The kernel takes a program that calls the driver in no other place than the driver.
        let attach = if stamps == RxStamps::Hardware { Attach::Native } else { attach };
        let (program, sockets) = load(ifindex, steering, stamps)?;
        let native = || link(program.as_fd(), ifindex, FLAGS_DRV_MODE);
        let generic = || link(program.as_fd(), ifindex, FLAGS_SKB_MODE);
        let (link, mode) = match attach {
            Attach::Native => (native()?, XdpMode::Native),
            Attach::Generic => (generic()?, XdpMode::Generic),
            Attach::Auto => match native() {
                Ok(link) => (link, XdpMode::Native),
                // Somebody else's program is there, and would be in the stack's way as well.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(error),
                Err(error) => match generic() {
                    Ok(link) => (link, XdpMode::Generic),
                    Err(_) => return Err(error),
                },
            },
        };
        Ok(Self { link, sockets, mode, stamps })
    }

    /// Where the program is attached.
    pub const fn mode(&self) -> XdpMode {
        self.mode
    }

    /// How the program stamps what it steers.
    pub const fn stamps(&self) -> RxStamps {
        self.stamps
    }

    /// Steers `queue` into `socket`; closing the socket ends that.
    pub(crate) fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd();
        let (key, value): (*const c_void, *const c_void) =
            (ptr::from_ref(&queue).cast(), ptr::from_ref(&value).cast());
        // SAFETY: key and value are 4 bytes, as the map's are, and live through the call.
        let result =
            unsafe { libbpf_sys::bpf_map_update_elem(self.sockets.as_raw_fd(), key, value, 0) };
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }
}

impl Drop for Attachment {
    /// Closing the link would detach the program too, but only with its last descriptor: a child
    /// that another thread has just forked holds one until it runs its own program, and until then
    /// the interface would be busy.
    fn drop(&mut self) {
        // SAFETY: the call reads no memory of ours, and the descriptor is open until after it. Where
        // it fails, the interface is gone and the program with it.
        let _ = unsafe { libbpf_sys::bpf_link_detach(self.link.as_raw_fd()) };
    }
}

/// Loads the program; gives it and the map of sockets.
fn load(ifindex: u32, steering: &Steering, stamps: RxStamps) -> io::Result<(OwnedFd, OwnedFd)> {
    const MODE_ALL: u32 = 1;
    const MODE_ETHERTYPE: u32 = 2;
    const MODE_UDP: u32 = 4;
    const MODE_IPV6: u32 = 8;
    /// Of `linux/bpf.h`: the program may call the driver of its interface.
    const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
    let matches = match steering {
        Steering::All => &[][..],
        Steering::Matches(matches) => matches,
    };
    let mut mode = if *steering == Steering::All { MODE_ALL } else { 0 };
    for one in matches {
        mode |= match one {
            Match::EtherType(_) => MODE_ETHERTYPE,
            Match::UdpPort(_) => MODE_UDP,
            Match::Ipv6Block { .. } => MODE_IPV6,
        };
    }
    libbpf_rs::set_print(None);
    let object = if stamps == RxStamps::Hardware { OBJECT_HARDWARE } else { OBJECT };
    let mut open = ObjectBuilder::default().open_memory(object).map_err(to_io)?;
    let mut settings = Vec::from(mode.to_ne_bytes());
    settings.extend(u32::from(stamps != RxStamps::Off).to_ne_bytes());
    let is_constant = |map: &libbpf_rs::OpenMapMut<'_>| map.name().as_bytes().ends_with(b".rodata");
    let mut constants = open.maps_mut().find(is_constant).ok_or_else(|| lacking("settings"))?;
    constants.set_initial_value(&settings).map_err(to_io)?;
    if stamps == RxStamps::Hardware {
        for mut program in open.progs_mut() {
            program.set_ifindex(ifindex);
            program.set_flags(BPF_F_XDP_DEV_BOUND_ONLY);
        }
    }
    let loaded = open.load().map_err(to_io)?;
    for one in matches {
        let (map, key) = match one {
            Match::EtherType(value) => ("ethertypes", value.to_ne_bytes().to_vec()),
            Match::UdpPort(value) => ("udp_ports", value.to_ne_bytes().to_vec()),
            Match::Ipv6Block { address, prefix_bits } => {
                let mut key = u32::from(*prefix_bits).to_ne_bytes().to_vec();
                key.extend_from_slice(&address.octets());
                ("ipv6_blocks", key)
            }
        };
        map_of(&loaded, map)?.update(&key, &[1], MapFlags::ANY).map_err(to_io)?;
    }
    let sockets = map_of(&loaded, "sockets")?.as_fd().try_clone_to_owned()?;
    let program = loaded.progs().next().ok_or_else(|| lacking("steer"))?;
    Ok((program.as_fd().try_clone_to_owned()?, sockets))
}

fn map_of<'a>(object: &'a Object, name: &str) -> io::Result<Map<'a>> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| lacking(name))
}

fn lacking(name: &str) -> io::Error {
    io::Error::other(format!("the compiled program has no {name}"))
}

fn link(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: u64::try_from(size_of::<libbpf_sys::bpf_link_create_opts>()).unwrap_or(0),
        flags,
        ..libbpf_sys::bpf_link_create_opts::default()
    };
    let target = i32::try_from(ifindex).map_err(|_| io::Error::other("interface index"))?;
    // SAFETY: the options live through the call.
    let result = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            target,
            libbpf_sys::BPF_XDP,
            ptr::from_ref(&options),
        )
    };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: the call above returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

fn to_io(error: libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}

/// Whether the driver of the interface of that index in the calling thread's namespace says that
/// it does XDP in the driver, and AF_XDP without copies.
pub(crate) fn driver_features(ifindex: u32) -> io::Result<DriverFeatures> {
    const NETDEV_XDP_ACT_BASIC: u64 = 1;
    const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 8;
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: u64::try_from(size_of::<libbpf_sys::bpf_xdp_query_opts>()).unwrap_or(0),
        ..libbpf_sys::bpf_xdp_query_opts::default()
    };
    let target = i32::try_from(ifindex).map_err(|_| io::Error::other("interface index"))?;
    // SAFETY: the options live through the call and name their own size.
    let result = unsafe { libbpf_sys::bpf_xdp_query(target, 0, ptr::from_mut(&mut options)) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(DriverFeatures {
        native: options.feature_flags & NETDEV_XDP_ACT_BASIC != 0,
        zero_copy: options.feature_flags & NETDEV_XDP_ACT_XSK_ZEROCOPY != 0,
        zero_copy_descriptors_max: options.xdp_zc_max_segs,
        attached: options.prog_id != 0 || options.drv_prog_id != 0 || options.skb_prog_id != 0,
    })
}

/// What a driver says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverFeatures {
    pub(crate) native: bool,
    pub(crate) zero_copy: bool,
    pub(crate) zero_copy_descriptors_max: u32,
    pub(crate) attached: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_read_as_they_are_written() {
        assert_eq!("ethertype=0x8915".parse(), Ok(Match::EtherType(0x8915)));
        assert_eq!("udp=4791".parse(), Ok(Match::UdpPort(4_791)));
        let address = "fcbb:bb00::".parse().expect("an address");
        let block = Match::Ipv6Block { address, prefix_bits: 32 };
        assert_eq!("ipv6=fcbb:bb00::/32".parse(), Ok(block));
        for wrong in ["udp=65536", "ethertype=88", "ipv6=::/129", "tcp=1", "udp"] {
            assert!(wrong.parse::<Match>().is_err(), "{wrong}");
        }
    }
}
