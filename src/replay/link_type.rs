//! Link types by name (the registry of draft-ietf-opsawg-pcaplinktype, as kept by tcpdump.org).

use std::fmt;

/// What the frames of an interface are, by the number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// IEEE 802.3 Ethernet: the only kind that goes through a switch.
    pub const ETHERNET: Self = Self(1);

    /// The registry's name without its prefix, for the types that captures are likely to have.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "NULL",
            1 => "ETHERNET",
            3 => "AX25",
            6 => "IEEE802_5",
            7 => "ARCNET_BSD",
            8 => "SLIP",
            9 => "PPP",
            10 => "FDDI",
            50 => "PPP_HDLC",
            51 => "PPP_ETHER",
            100 => "ATM_RFC1483",
            101 => "RAW",
            104 => "C_HDLC",
            105 => "IEEE802_11",
            107 => "FRELAY",
            108 => "LOOP",
            113 => "LINUX_SLL",
            117 => "PFLOG",
            119 => "IEEE802_11_PRISM",
            122 => "IP_OVER_FC",
            123 => "SUNATM",
            127 => "IEEE802_11_RADIOTAP",
            129 => "ARCNET_LINUX",
            130 => "JUNIPER_MLPPP",
            131 => "JUNIPER_MLFR",
            132 => "JUNIPER_ES",
            133 => "JUNIPER_GGSN",
            134 => "JUNIPER_MFR",
            135 => "JUNIPER_ATM2",
            136 => "JUNIPER_SERVICES",
            137 => "JUNIPER_ATM1",
            138 => "APPLE_IP_OVER_IEEE1394",
            147..=162 => "USER",
            163 => "IEEE802_11_AVS",
            166 => "PPP_PPPD",
            178 => "JUNIPER_ETHER",
            179 => "JUNIPER_PPP",
            180 => "JUNIPER_FRELAY",
            181 => "JUNIPER_CHDLC",
            182 => "MFR",
            187 => "BLUETOOTH_HCI_H4",
            189 => "USB_LINUX",
            192 => "PPI",
            195 => "IEEE802_15_4_WITHFCS",
            197 => "ERF",
            220 => "USB_LINUX_MMAPPED",
            228 => "IPV4",
            229 => "IPV6",
            230 => "IEEE802_15_4_NOFCS",
            239 => "NFLOG",
            240 => "NETANALYZER",
            242 => "IPOIB",
            247 => "INFINIBAND",
            249 => "USBPCAP",
            253 => "NETLINK",
            258 => "PKTAP",
            271 => "VSOCK",
            274 => "ETHERNET_MPACKET",
            276 => "LINUX_SLL2",
            285 => "DSA_TAG_EDSA",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}
