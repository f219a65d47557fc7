//! The interfaces of the bench, its frames, and opening ports.

use std::error::Error;

use tailwater::frame::{Frame, FrameStore as _};
use tailwater::wire::MacAddr;
use tailwater::xdp::{ChunkSize, NetNs, Port, PortConfig, RingSizes, UmemStore};

/// The host's ends: frames leave by the first and should come back by the second.
pub(crate) const HOST_ENDS: [&str; 2] = ["gen0", "sink0"];

/// The forwarder's ends, in the same order.
pub(crate) const SWITCH_ENDS: [&str; 2] = ["sw0", "sw1"];

/// The stations at the two ends.
pub(crate) const STATIONS: [MacAddr; 2] =
    [MacAddr::from_u64(0x0200_0000_0001), MacAddr::from_u64(0x0200_0000_0002)];

/// 64 with FCS.
pub(crate) const FRAME_BYTES: u32 = 60;

/// Frames that are taken from a ring at once, as the lab does.
pub(crate) const BURST: usize = 64;

/// An EtherType for experiments (IEEE 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// Where the time stamp of a frame is.
const STAMP: std::ops::Range<usize> = 16..24;

pub(crate) fn pin(core: usize) -> Result<(), Box<dyn Error>> {
    if core_affinity::set_for_current(core_affinity::CoreId { id: core }) {
        return Ok(());
    }
    Err(format!("there is no core {core}: the bench wants two").into())
}

/// Two open ports over one store.
pub(crate) struct Ends {
    pub(crate) store: UmemStore,
    pub(crate) ports: [Port; 2],
}

impl Ends {
    pub(crate) fn open(
        netns: &str,
        names: [&str; 2],
        ring_entries: u32,
    ) -> Result<Self, Box<dyn Error>> {
        // Both fill rings and both TX rings full, and as much again in hand.
        let mut store = UmemStore::new(ChunkSize::Bytes2048, 8 * ring_entries)?;
        let mut open = |name| {
            let config = PortConfig {
                rings: RingSizes::of(ring_entries),
                ..PortConfig::new(NetNs::Named(netns.to_owned()), name)
            };
            Port::open(&mut store, config)
        };
        let ports = [open(names[0])?, open(names[1])?];
        Ok(Self { store, ports })
    }

    /// Sends one frame that says when; false when there is no room.
    pub(crate) fn send(&mut self, stamp: u64) -> bool {
        let Some(mut frame) = self.store.allocate(FRAME_BYTES) else {
            return false;
        };
        let head = self.store.head_mut(&mut frame);
        head[..6].copy_from_slice(&STATIONS[1].0);
        head[6..12].copy_from_slice(&STATIONS[0].0);
        head[12..14].copy_from_slice(&ETHER_TYPE);
        head[14..].fill(0);
        head[STAMP].copy_from_slice(&stamp.to_be_bytes());
        match self.ports[0].tx_push(&mut self.store, frame) {
            Ok(()) => true,
            Err((frame, _)) => {
                self.store.release(frame);
                false
            }
        }
    }

    /// Shows the kernel what was sent, and takes back what it is done with.
    pub(crate) fn flush(&mut self) {
        self.ports[0].kick();
        self.ports[0].reap(&mut self.store);
    }

    /// Takes what came to the second port, and shows each stamp; gives the number of frames.
    pub(crate) fn receive(&mut self, scratch: &mut Vec<Frame>, mut each: impl FnMut(u64)) -> u64 {
        let count = self.ports[1].rx_burst(&mut self.store, scratch, BURST);
        for frame in scratch.drain(..) {
            let stamp = self.store.head(&frame).get(STAMP).and_then(|bytes| bytes.try_into().ok());
            if let Some(stamp) = stamp {
                each(u64::from_be_bytes(stamp));
            }
            self.store.release(frame);
        }
        count as u64
    }

    pub(crate) fn close(mut self) {
        for port in &mut self.ports {
            port.close(&mut self.store);
        }
    }
}
