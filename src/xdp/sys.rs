//! The system calls of AF_XDP, each behind a safe function.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

pub(crate) use libc::{
    XDP_COPY, XDP_MMAP_OFFSETS, XDP_OPTIONS, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_PKT_CONTD,
    XDP_RING_NEED_WAKEUP, XDP_RX_RING, XDP_SHARED_UMEM, XDP_STATISTICS, XDP_TX_RING,
    XDP_UMEM_COMPLETION_RING, XDP_UMEM_FILL_RING, XDP_UMEM_REG, XDP_USE_NEED_WAKEUP, XDP_USE_SG,
    XDP_ZEROCOPY, packet_mreq, sockaddr_xdp, xdp_desc, xdp_mmap_offsets, xdp_options,
    xdp_ring_offset, xdp_statistics, xdp_umem_reg,
};

/// Frames that one `sendto` may take in copy mode (Linux 6.17); 32 without it.
pub(crate) const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
/// Of `linux/if_xdp.h`: the socket receives and sends without copies.
pub(crate) const XDP_OPTIONS_ZEROCOPY: u32 = 1;
pub(crate) const XDP_UMEM_PGOFF_FILL_RING: libc::off_t = 0x1_0000_0000;
pub(crate) const XDP_UMEM_PGOFF_COMPLETION_RING: libc::off_t = 0x1_8000_0000;

/// What the kernel may read and write byte for byte: C structures without padding or pointers.
///
/// # Safety
/// Every bit pattern is a value of the type.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: integers without padding.
unsafe impl Plain for xdp_umem_reg {}
// SAFETY: integers without padding.
unsafe impl Plain for xdp_mmap_offsets {}
// SAFETY: integers without padding.
unsafe impl Plain for xdp_statistics {}
// SAFETY: an integer.
unsafe impl Plain for xdp_options {}

// SAFETY: integers and bytes without padding.
unsafe impl Plain for packet_mreq {}

fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A socket of the calling thread's network namespace, closed on exec.
pub(crate) fn socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the call above returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A counter whose descriptor is readable while it is not zero; never blocks, closed on exec.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the call above returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option to `value`.
pub(crate) fn setsockopt<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the pointer and length name `value`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, ptr::from_ref(value).cast(), socklen::<T>())
    };
    check(result).map(drop)
}

/// Reads a socket option into `value`; gives how many bytes the kernel wrote.
pub(crate) fn getsockopt<T: Plain>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &mut T,
) -> io::Result<usize> {
    let mut len = socklen::<T>();
    let at: *mut c_void = ptr::from_mut(value).cast();
    // SAFETY: `at` and `len` name `value`, of which every bit pattern is one of its type.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at, ptr::from_mut(&mut len)) };
    check(result)?;
    Ok(usize::try_from(len).unwrap_or(0))
}

/// Binds an AF_XDP socket to (interface, queue), sharing the UMEM of `umem_of` when given.
pub(crate) fn bind_xdp(
    fd: BorrowedFd<'_>,
    ifindex: u32,
    queue: u32,
    flags: u16,
    umem_of: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let shared = umem_of.map_or(0, |fd| u32::try_from(fd.as_raw_fd()).unwrap_or(0));
    let address = sockaddr_xdp {
        sxdp_family: u16::try_from(libc::AF_XDP).unwrap_or(0),
        sxdp_flags: if umem_of.is_some() { XDP_SHARED_UMEM } else { flags },
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared,
    };
    let len = socklen::<sockaddr_xdp>();
    // SAFETY: the pointer and length name `address`, which lives through the call.
    let result = unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(&address).cast(), len) };
    check(result).map(drop)
}

/// Wakes the sending side: copy mode sends within the call.
pub(crate) fn wake_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no buffer and no address are passed, which AF_XDP allows.
    let result =
        unsafe { libc::sendto(fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Wakes the receiving side, when the fill ring asks for it.
pub(crate) fn wake_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no buffer and no address are passed, which AF_XDP allows.
    let result = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A shared mapping of a ring, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: *mut c_void,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` at `offset`, for reading and writing, populated.
    pub(crate) fn of(fd: BorrowedFd<'_>, len: usize, offset: libc::off_t) -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: no address is asked for, so that no mapping of ours is replaced.
        let at =
            unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at, len })
    }

    /// The place `offset` bytes into the mapping, for a `T` and `count` of them.
    ///
    /// # Panics
    /// When they would lie outside the mapping or not be aligned.
    pub(crate) fn place<T>(&self, offset: u64, count: usize) -> *mut T {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = size_of::<T>().saturating_mul(count).saturating_add(offset);
        assert!(end <= self.len, "a ring ends at {end}, past its mapping of {}", self.len);
        let place = self.at.wrapping_byte_add(offset).cast::<T>();
        assert!(place.is_aligned(), "a ring's part at {offset} is not aligned");
        place
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `of`, and rings that point into it are gone with it.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

/// What `struct ifreq` carries besides the name: an integer in and out.
pub(crate) fn interface_request(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    name: &str,
) -> io::Result<libc::__c_anonymous_ifr_ifru> {
    let mut ifreq = named_request(name)?;
    let at = ptr::from_mut(&mut ifreq);
    // SAFETY: the kernel reads and writes one `ifreq`, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, at) })?;
    Ok(ifreq.ifr_ifru)
}

/// An ethtool command on `command`, a C structure that begins with the command's number.
///
/// # Safety
/// The structure is the one that the kernel expects for its command.
pub(crate) unsafe fn ethtool_request<T>(
    fd: BorrowedFd<'_>,
    name: &str,
    command: &mut T,
) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { interface_data(fd, libc::SIOCETHTOOL, name, command) }
}

/// A request on an interface whose `ifreq` points to `data`.
///
/// # Safety
/// The structure is the one that the kernel expects for the request.
pub(crate) unsafe fn interface_data<T>(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    name: &str,
    data: &mut T,
) -> io::Result<()> {
    let mut ifreq = named_request(name)?;
    ifreq.ifr_ifru.ifru_data = ptr::from_mut(data).cast();
    let at = ptr::from_mut(&mut ifreq);
    // SAFETY: the kernel reads one `ifreq` and what its pointer names; the caller vouches for that.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, at) }).map(drop)
}

/// A request on a device that reads and writes one `data`, whose size the request names.
pub(crate) fn plain_request<T: Plain>(
    fd: BorrowedFd<'_>,
    request: libc::Ioctl,
    data: &mut T,
) -> io::Result<()> {
    // The size is a part of a request's number, so that the kernel writes no more than that.
    let size = usize::try_from(request >> 16 & 0x3fff).unwrap_or(usize::MAX);
    assert!(size <= size_of::<T>(), "a request of {size} bytes on {}", size_of::<T>());
    // SAFETY: the kernel reads and writes one `T`, of which every bit pattern is a value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, ptr::from_mut(data)) }).map(drop)
}

fn named_request(name: &str) -> io::Result<libc::ifreq> {
    let mut ifreq = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: ptr::null_mut() },
    };
    if name.len() >= libc::IFNAMSIZ || name.is_empty() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(ifreq)
}
