//! VLAN membership, and the tag with which a frame leaves.
//!
//! The outer tag counts, whichever of the tag types it has (0x8100, 0x88A8, 0x9100). A tag with
//! VLAN 0 carries a priority alone: such a frame belongs to the port's VLAN of untagged frames
//! (IEEE 802.1Q clause 6.9). A tag that the switch puts on has type 0x8100.

use super::classify::{TAG_BYTES, Tags};
use super::config::{SwitchConfig, VlanMode};
use super::mac_table::key_of;
use super::port_set::PortSet;
use crate::frame::{Frame, FrameStore};
use crate::ledger::DropReason;
use crate::node::PortId;

/// The largest VLAN that a frame can be in; 0 and 4095 are reserved.
pub(super) const VLAN_MAX: u16 = 4_094;

/// The part of a tag that is the VLAN.
pub(super) const VLAN_MASK: u16 = 0x0fff;

/// Numbers that a VLAN can have.
const VLANS: usize = VLAN_MASK as usize + 1;

/// Destination and source address, which stay in front of the outer tag.
const ADDRESS_BYTES: usize = 12;

/// The ports of one VLAN.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vlan {
    /// Ports whose frames may be in the VLAN.
    pub(super) members: PortSet,
    /// Those among them that unknown and group destinations are flooded to.
    pub(super) flood: PortSet,
    /// Those among them that frames leave without tag, and with it.
    untagged: PortSet,
    pub(super) tagged: PortSet,
    /// The VLAN at its place in the MAC table's keys.
    pub(super) key: u64,
}

/// All VLANs of a switch.
#[derive(Clone, Debug)]
pub(super) struct Vlans {
    /// Place in `vlans` by number; 0, without members, for those that no port has.
    places: Box<[u16; VLANS]>,
    vlans: Vec<Vlan>,
}

impl Vlans {
    pub(super) fn new(config: &SwitchConfig) -> Self {
        let mut all = Self { places: Box::new([0; VLANS]), vlans: vec![Vlan::default()] };
        for (port, port_config) in config.ports.iter().enumerate() {
            let (tagged, untagged): (&[u16], _) = match &port_config.vlan {
                VlanMode::Access(vlan) => (&[], Some(*vlan)),
                VlanMode::Trunk { allowed, native } => (allowed, *native),
            };
            for number in tagged.iter().copied().chain(untagged) {
                let vlan = all.make(number);
                vlan.members.insert(port);
                if port_config.flood {
                    vlan.flood.insert(port);
                }
                if untagged == Some(number) {
                    vlan.untagged.insert(port);
                } else {
                    vlan.tagged.insert(port);
                }
            }
        }
        all
    }

    /// The VLANs that a port is a member of.
    pub(super) fn numbers_of(&self, port: usize) -> impl Iterator<Item = u16> + '_ {
        (1..=VLAN_MAX).filter(move |number| self.get(*number).members.contains(port))
    }

    fn make(&mut self, number: u16) -> &mut Vlan {
        let place = &mut self.places[usize::from(number & VLAN_MASK)];
        if *place == 0 {
            // At most 4,094 of them.
            *place = u16::try_from(self.vlans.len()).unwrap_or(0);
            self.vlans.push(Vlan { key: key_of(number, 0), ..Vlan::default() });
        }
        &mut self.vlans[usize::from(*place)]
    }

    /// The VLAN of that number; one without ports when no port has it.
    #[inline]
    pub(super) fn get(&self, number: u16) -> &Vlan {
        &self.vlans[usize::from(self.places[usize::from(number & VLAN_MASK)])]
    }
}

impl Vlans {
    /// What happens to the outer tag of a frame in `vlan` that leaves by `egress`.
    ///
    /// # Errors
    /// [`DropReason::VlanEgress`] when the port is not in the VLAN.
    #[inline(never)]
    pub(super) fn tag_change(
        &self,
        tags: Tags,
        vlan: u16,
        priority: u8,
        egress: PortId,
    ) -> Result<TagChange, DropReason> {
        let ports = self.get(vlan);
        if !ports.members.contains(egress.index()) {
            return Err(DropReason::VlanEgress);
        }
        Ok(TagChange::new(tags.outer(), vlan, priority, ports.untagged.contains(egress.index())))
    }
}

/// What happens to the outer tag on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagChange {
    /// The frame leaves as it came.
    Keep,
    /// A tag with this control information is put on.
    Push(u16),
    /// The outer tag is taken off.
    Pop,
    /// The outer tag gets this control information: it carried a priority alone.
    Set(u16),
}

impl TagChange {
    /// For a frame that came with `tag` and is in `vlan` with `priority`.
    #[inline]
    pub(super) const fn new(
        tag: Option<u16>,
        vlan: u16,
        priority: u8,
        leaves_untagged: bool,
    ) -> Self {
        match tag {
            None if leaves_untagged => Self::Keep,
            None => Self::Push((priority as u16) << 13 | vlan),
            Some(_) if leaves_untagged => Self::Pop,
            Some(tag) if tag & VLAN_MASK == vlan => Self::Keep,
            Some(tag) => Self::Set(tag & !VLAN_MASK | vlan),
        }
    }

    /// The length after it of a frame of `len_bytes` bytes.
    #[inline]
    pub(super) const fn len_after(self, len_bytes: u32) -> u32 {
        match self {
            Self::Keep | Self::Set(_) => len_bytes,
            Self::Push(_) => len_bytes + TAG_BYTES,
            Self::Pop => len_bytes - TAG_BYTES,
        }
    }

    /// Carries it out; false when there is no headroom for the tag.
    #[inline(always)]
    pub(super) fn apply<S: FrameStore>(self, store: &mut S, frame: &mut Frame) -> bool {
        matches!(self, Self::Keep) || self.change(store, frame)
    }

    #[inline(never)]
    fn change<S: FrameStore>(self, store: &mut S, frame: &mut Frame) -> bool {
        const TAG: usize = TAG_BYTES as usize;
        match self {
            Self::Keep => {}
            Self::Push(tag) => {
                if !store.push_head(frame, TAG_BYTES) {
                    return false;
                }
                let head = store.head_mut(frame);
                head.copy_within(TAG..TAG + ADDRESS_BYTES, 0);
                let [high, low] = tag.to_be_bytes();
                head[ADDRESS_BYTES..ADDRESS_BYTES + TAG].copy_from_slice(&[0x81, 0x00, high, low]);
            }
            Self::Pop => {
                store.head_mut(frame).copy_within(0..ADDRESS_BYTES, TAG);
                store.pull_head(frame, TAG_BYTES);
            }
            Self::Set(tag) => {
                let head = store.head_mut(frame);
                head[ADDRESS_BYTES + 2..ADDRESS_BYTES + TAG].copy_from_slice(&tag.to_be_bytes());
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::SlabStore;

    const UNTAGGED: [u8; 16] = [0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45, 0x00];
    const TAGGED: [u8; 20] =
        [0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x81, 0x00, 0x60, 0x64, 0x08, 0x00, 0x45, 0x00];

    fn after(bytes: &[u8], change: TagChange) -> Vec<u8> {
        let mut store = SlabStore::new(8);
        let mut frame = store.allocate_from(bytes).expect("room");
        let len = change.len_after(frame.len_bytes());
        assert!(change.apply(&mut store, &mut frame));
        assert_eq!(frame.len_bytes(), len);
        let mut out = Vec::new();
        store.copy_out(&frame, &mut out);
        store.release(frame);
        out
    }

    #[test]
    fn tags_go_on_and_come_off_bit_for_bit() {
        assert_eq!(after(&UNTAGGED, TagChange::new(None, 100, 3, false)), TAGGED);
        assert_eq!(after(&TAGGED, TagChange::new(Some(0x6064), 100, 3, true)), UNTAGGED);
        assert_eq!(after(&TAGGED, TagChange::new(Some(0x6064), 100, 3, false)), TAGGED);
        assert_eq!(after(&UNTAGGED, TagChange::new(None, 100, 3, true)), UNTAGGED);
    }

    #[test]
    fn a_priority_tag_gets_its_vlan_and_keeps_pcp_and_dei() {
        let mut priority_tagged = TAGGED;
        priority_tagged[14..16].copy_from_slice(&[0x70, 0x00]);
        assert_eq!(Tags::new(0x7000, 1).vlan(), None, "the port's VLAN");
        let out = after(&priority_tagged, TagChange::new(Some(0x7000), 100, 3, false));
        assert_eq!(out[12..16], [0x81, 0x00, 0x70, 0x64]);
    }
}
