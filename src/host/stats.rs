//! What a host counts beside its books.

macro_rules! host_stats {
    ($($(#[doc = $doc:literal])+ $field:ident,)+) => {
        /// What a host has done, in frames, beside its books.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct HostStats { $($(#[doc = $doc])+ pub $field: u64,)+ }

        impl HostStats {
            /// Every counter with the name under which reports have it.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)+].into_iter()
            }
        }
    };
}

host_stats! {
    /// Frames that arrived.
    rx_frames,
    /// Their bytes, without FCS.
    rx_bytes,
    /// Frames that left.
    tx_frames,
    /// Their bytes, without FCS.
    tx_bytes,
    /// ARP requests for our address.
    arp_answered,
    /// Neighbour solicitations for our address.
    solicitations_answered,
    /// ICMPv4 echo requests.
    echo_v4_answered,
    /// ICMPv6 echo requests.
    echo_v6_answered,
    /// Announcements of our own addresses.
    announcements_sent,
    /// Announcements of other stations.
    announcements_heard,
    /// Frames of streams that were sent.
    stream_frames_sent,
    /// Frames of streams that end here.
    stream_frames_received,
    /// Frames of streams that do not end here; dropped as unhandled.
    unknown_stream_frames,
    /// The most answers that waited for the line at once.
    answers_queued_max,
    /// Frames of storms that were sent.
    storm_frames_sent,
}
