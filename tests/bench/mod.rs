//! A switch with its store and a time: what tests of the whole pipeline hand frames to.

use tailwater::frame::{FrameStore, SlabStore};
use tailwater::node::{Node, PortId};
use tailwater::switch::{Switch, SwitchConfig};
use tailwater::time::Time;

/// A switch under test. When it goes, its books must balance and its store have every frame back.
pub(crate) struct Bench {
    pub(crate) switch: Switch,
    pub(crate) store: SlabStore,
    pub(crate) now: Time,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let ledger = Node::<SlabStore>::ledger(&self.switch);
        assert_eq!(ledger.check(), Ok(()), "{ledger:?}");
        assert_eq!(self.store.outstanding(), ledger.queued);
        self.switch.drain(&mut self.store);
        assert_eq!(self.store.outstanding(), 0);
    }
}

impl Bench {
    /// A switch of `config` over a store of `chunks` frames.
    pub(crate) fn of(config: SwitchConfig, chunks: u32) -> Self {
        let switch = Switch::new(config).unwrap_or_else(|error| panic!("{error}"));
        Self { switch, store: SlabStore::new(chunks), now: Time::ZERO }
    }

    /// A frame of these bytes comes by `port` now.
    pub(crate) fn arrives(&mut self, port: u16, bytes: &[u8]) {
        let frame = self.store.allocate_from(bytes).expect("room");
        self.switch.on_frame(self.now, &mut self.store, PortId(port), frame);
    }
}
