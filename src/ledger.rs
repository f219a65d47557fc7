//! The books of a node: every frame is received, generated or replicated, and then transmitted,
//! consumed, dropped under a name, or still queued. The sum is asserted at the end of every run.

use std::fmt;

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal,)+) => {
        /// Why a node dropped a frame. Each has a name under which reports count it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $variant,)+ }

        impl DropReason {
            /// Every reason, in the order of reports.
            pub const ALL: [Self; drop_reasons!(@count $($variant)+)] = [$(Self::$variant,)+];

            /// The name under which reports count it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
    (@count $($variant:ident)+) => { [$(stringify!($variant)),+].len() };
}

drop_reasons! {
    /// Shorter than an Ethernet header (14 bytes).
    Runt => "runt",
    /// Longer than the port's MTU plus Ethernet and VLAN headers.
    Oversize => "oversize",
    /// A header that contradicts itself (more than four VLAN tags, a length past the frame's end).
    Malformed => "malformed",
    /// Destination 01:80:C2:00:00:00 to 0F: link-local by IEEE 802.1Q clause 8.6.3, never forwarded.
    LinkLocal => "link_local",
    /// Source address is a group address, which no station may have.
    SourceMulticast => "source_multicast",
    /// The VLAN of the frame is not a member of the ingress port.
    VlanIngress => "vlan_ingress",
    /// The destination's only port is the one the frame came in by.
    SamePort => "same_port",
    /// There is no port to flood to in this VLAN.
    NoDestination => "no_destination",
    /// The destination port is not a member of the VLAN.
    VlanEgress => "vlan_egress",
    /// The egress queue is at its byte limit (tail drop).
    QueueLimit => "queue_limit",
    /// A frame that cannot be marked came to a long queue (early drop by its curve).
    Wred => "wred",
    /// The switch's memory has no free cells.
    BufferFull => "buffer_full",
    /// The frame's priority group (ingress port, priority) is at its threshold.
    IngressLimit => "ingress_limit",
    /// A lossless priority group has used up its headroom.
    HeadroomFull => "headroom_full",
    /// To be trimmed, and there was no room in the queue of the trimmed.
    TrimDrop => "trim_drop",
    /// The watchdog has turned PFC off for the frame's class, and drops what belongs to it.
    Watchdog => "watchdog",
    /// No frame of the store was free for a copy.
    NoFrameForCopy => "no_frame_for_copy",
    /// No room before the frame for a tag or an outer header.
    NoHeadroom => "no_headroom",
    /// Longer than the egress port's MTU.
    EgressMtu => "egress_mtu",
    /// The port's link is down.
    LinkDown => "link_down",
    /// No route to the destination.
    NoRoute => "no_route",
    /// A route without next hops.
    Blackhole => "blackhole",
    /// No next hop of the group can take it.
    NoNextHop => "no_next_hop",
    /// The hop limit or TTL was used up.
    HopLimit => "hop_limit",
    /// A source address that no packet on its way may have: a group's, the loopback's, none, or one of
    /// link-local scope.
    BadSource => "bad_source",
    /// Extension headers that go on behind what a router looks at, or are more than it can take off.
    HeadersTooLong => "headers_too_long",
    /// A segment routing header that contradicts itself, or has segments left where a path ends.
    BadSegments => "bad_segments",
    /// More segments of one node in a row than it looks at.
    SegmentSteps => "segment_steps",
    /// A path ends at a segment that has no use for what the packet carries.
    SegmentUpperLayer => "segment_upper_layer",
    /// A fragment at a segment that takes packets out of it.
    SegmentFragment => "segment_fragment",
    /// Congestion experienced on the outside of a tunnel, and a sender inside that could not be told
    /// (RFC 6040 figure 4).
    TunnelCongestion => "tunnel_congestion",
    /// A VXLAN network that is no VLAN of the switch.
    UnknownVni => "unknown_vni",
    /// A VXLAN packet from an address that is no endpoint of its networks.
    UnknownVtep => "unknown_vtep",
    /// A host got a frame that is not for its address.
    NotForUs => "not_for_us",
    /// A frame for the node itself of a kind that it does not answer.
    Unhandled => "unhandled",
    /// An IPv4, UDP or ICMP checksum that does not match.
    BadChecksum => "bad_checksum",
    /// A host's queue for its line is at its limit of frames.
    NicQueueFull => "nic_queue_full",
    /// No frame of the store was free for one that the host was to send.
    NoFrameToSend => "no_frame_to_send",
}

/// Counts per drop reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl Drops {
    /// Counts one frame.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// Frames dropped for `reason`.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Frames dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|reason| (*reason, self.of(*reason))).filter(|(_, n)| *n > 0)
    }
}

/// The books of one node, in frames. `queued` is what the node holds when the ledger is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Arrived by a port.
    pub received: u64,
    /// Made by the node itself.
    pub generated: u64,
    /// Copies made for flooding.
    pub replicated: u64,
    /// Handed to a port's wire.
    pub transmitted: u64,
    /// Delivered to the node itself.
    pub consumed: u64,
    /// Dropped, by reason.
    pub drops: Drops,
    /// Held in queues.
    pub queued: u64,
}

/// A ledger whose two sides differ: frames were lost or invented without a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// received + generated + replicated.
    pub came: u64,
    /// transmitted + consumed + dropped + queued.
    pub went: u64,
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames came (received, generated, replicated) and {} are accounted for",
            self.came, self.went
        )
    }
}

impl std::error::Error for Imbalance {}

impl Ledger {
    /// Checks `received + generated + replicated == transmitted + consumed + dropped + queued`.
    ///
    /// # Errors
    /// [`Imbalance`] with both sums.
    pub fn check(&self) -> Result<(), Imbalance> {
        let came = self.received + self.generated + self.replicated;
        let went = self.transmitted + self.consumed + self.drops.total() + self.queued;
        if came == went { Ok(()) } else { Err(Imbalance { came, went }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uncounted_frame_is_found() {
        let mut ledger = Ledger { received: 2, transmitted: 1, ..Ledger::default() };
        assert_eq!(ledger.check(), Err(Imbalance { came: 2, went: 1 }));
        ledger.drops.count(DropReason::Runt);
        assert_eq!(ledger.check(), Ok(()));
        assert_eq!(ledger.drops.iter().collect::<Vec<_>>(), [(DropReason::Runt, 1)]);
    }
}
