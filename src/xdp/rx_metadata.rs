//! What a driver can tell the XDP program about a received frame, asked of the kernel by generic
//! netlink (family `netdev`).

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// Of `linux/genetlink.h` and `linux/netdev.h`.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;
const NETDEV_XDP_RX_METADATA_TIMESTAMP: u64 = 1;

const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// `struct nlmsghdr` and `struct genlmsghdr`.
const HEADER_BYTES: usize = 16 + 4;

/// Whether the driver of the interface of that index in the calling thread's namespace gives stamps
/// of arrival; None when the kernel does not say (before 6.7).
pub(crate) fn has_timestamps(ifindex: u32) -> io::Result<Option<bool>> {
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkGeneric,
    )?;
    let answer =
        ask(&netlink, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, b"netdev\0")?;
    let family = attribute(&answer, CTRL_ATTR_FAMILY_ID)
        .and_then(|value| Some(u16::from_ne_bytes(value.try_into().ok()?)))
        .ok_or_else(unexpected)?;
    let index = ifindex.to_ne_bytes();
    let answer = ask(&netlink, family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &index)?;
    Ok(timestamps_in(&answer))
}

fn timestamps_in(attributes: &[u8]) -> Option<bool> {
    let value = attribute(attributes, NETDEV_A_DEV_XDP_RX_METADATA_FEATURES)?;
    let features = u64::from_ne_bytes(value.try_into().ok()?);
    Some(features & NETDEV_XDP_RX_METADATA_TIMESTAMP != 0)
}

fn unexpected() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidData)
}

/// Sends one request with one attribute; gives the attributes of the answer.
fn ask(
    netlink: &OwnedFd,
    family: u16,
    command: u8,
    attribute: u16,
    value: &[u8],
) -> io::Result<Vec<u8>> {
    let request = request(family, command, attribute, value);
    send(netlink.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answer = vec![0; 8_192];
    let len = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    attributes_of(&answer[..len]).map(<[u8]>::to_vec)
}

fn request(family: u16, command: u8, attribute: u16, value: &[u8]) -> Vec<u8> {
    let bytes = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
    let mut body = vec![command, 1, 0, 0];
    body.extend(bytes(4 + value.len()).to_ne_bytes());
    body.extend(attribute.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
    let mut message = Vec::from((u32::from(bytes(16 + body.len()))).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port: there is one request at a time, and the kernel fills in the port.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// What follows the headers of an answer, or the error that it is.
fn attributes_of(message: &[u8]) -> io::Result<&[u8]> {
    let word = |at: usize| message.get(at..at + 4).and_then(|word| word.try_into().ok());
    let len = word(0).map(u32::from_ne_bytes).and_then(|len| usize::try_from(len).ok());
    let message_type = message.get(4..6).and_then(|kind| kind.try_into().ok());
    if message_type.map(u16::from_ne_bytes) == Some(NLMSG_ERROR) {
        let code = word(16).map_or(0, i32::from_ne_bytes);
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    len.and_then(|len| message.get(HEADER_BYTES..len)).ok_or_else(unexpected)
}

/// The value of the first attribute of that number.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (len, rest) = attributes.split_first_chunk()?;
        let (number, _) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_ne_bytes(*len));
        let value = attributes.get(4..len)?;
        if u16::from_ne_bytes(*number) == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(list: &[(u16, &[u8])]) -> Vec<u8> {
        list.iter()
            .flat_map(|(number, value)| request(0, 0, *number, value)[20..].to_vec())
            .collect()
    }

    #[test]
    fn a_request_is_laid_out_as_the_kernel_reads_it() {
        let got = request(0x10, 3, 2, b"netdev\0");
        let (len, kind, flags) =
            (32_u32.to_ne_bytes(), 0x10_u16.to_ne_bytes(), 1_u16.to_ne_bytes());
        let header = [&len[..], &kind, &flags, &[0; 8], &[3, 1, 0, 0]].concat();
        let (len, number) = (11_u16.to_ne_bytes(), 2_u16.to_ne_bytes());
        let want = [&header[..], &len, &number, b"netdev\0\0"].concat();
        assert_eq!(got, want);
    }

    #[test]
    fn attributes_are_found_behind_others_and_padding() {
        let all = attributes(&[(1, &[9; 4]), (3, &[1; 3]), (5, &3_u64.to_ne_bytes())]);
        assert_eq!(attribute(&all, 3), Some(&[1; 3][..]));
        assert_eq!(timestamps_in(&all), Some(true));
        assert_eq!(timestamps_in(&attributes(&[(5, &6_u64.to_ne_bytes())])), Some(false));
        assert_eq!(timestamps_in(&attributes(&[(1, &[9; 4])])), None);
        assert_eq!(attribute(&[0; 8], 7), None, "a length of zero ends it");
        assert_eq!(attribute(&all[..6], 1), None, "cut");
    }

    #[test]
    fn an_error_is_the_one_that_the_kernel_names() {
        let mut message = request(NLMSG_ERROR, 0, 0, &[]);
        message[16..20].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        let error = attributes_of(&message).expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(attributes_of(&[0; 7]).is_err());
    }

    #[test]
    fn the_loopback_stamps_nothing() {
        assert_ne!(has_timestamps(1).expect("the kernel answers"), Some(true));
        assert!(has_timestamps(u32::MAX).is_err(), "no such interface");
    }
}
