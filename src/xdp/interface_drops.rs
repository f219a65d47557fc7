//! What an interface dropped, by its own counters.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};

use super::netns::NetNs;

/// Frames that an interface says it dropped. A driver counts here what suits it: veth also what
/// the sockets count, most NICs what came before those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceDrops {
    /// Received and dropped, or missed for want of descriptors.
    pub rx: u64,
    /// Dropped instead of being sent.
    pub tx: u64,
}

impl InterfaceDrops {
    /// What was dropped since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self { rx: self.rx.saturating_sub(earlier.rx), tx: self.tx.saturating_sub(earlier.tx) }
    }
}

/// Reads [`InterfaceDrops`] again and again, after the capability to enter the namespace was given
/// up, too.
#[derive(Debug)]
pub struct DropsReader {
    table: File,
    interface: String,
}

impl DropsReader {
    /// Opens the counters of the interfaces of a namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn open(netns: &NetNs, interface: &str) -> io::Result<Self> {
        // The open file stays that of the namespace it was opened in; `/proc/net` itself is that of
        // the process's first thread.
        let table = netns.run(|| File::open("/proc/thread-self/net/dev")).and_then(|open| open)?;
        Ok(Self { table, interface: interface.to_owned() })
    }

    /// The counters now; zeros when the interface is gone.
    pub fn read(&mut self) -> InterfaceDrops {
        let mut text = String::new();
        let read = self.table.rewind().and_then(|()| self.table.read_to_string(&mut text));
        read.ok().and_then(|_| find(&text, &self.interface)).unwrap_or_default()
    }
}

/// The fourth number of each direction, of eight.
fn find(table: &str, interface: &str) -> Option<InterfaceDrops> {
    let numbers = table.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        (name.trim() == interface).then_some(numbers)
    })?;
    let number = |index| numbers.split_whitespace().nth(index)?.parse().ok();
    Some(InterfaceDrops { rx: number(3)?, tx: number(11)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_kernel_s_table() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs \
            drop fifo colls carrier compressed\n    lo:    3480      40    0    0    0     0 \
            0         0     3480      40    0    0    0     0       0          0\n    a0: 1 2 3 47 \
            5 6 7 8 9 10 11 12 13 14 15 16\n   a01:1 2 3 9 5 6 7 8 9 10 11 9 13 14 15 16\n";
        assert_eq!(find(table, "a0"), Some(InterfaceDrops { rx: 47, tx: 12 }));
        assert_eq!(find(table, "a01"), Some(InterfaceDrops { rx: 9, tx: 9 }));
        assert_eq!(find(table, "a"), None);
        assert_eq!(find("a0: 1 2 3", "a0"), None);
    }

    #[test]
    fn the_table_is_read_anew_each_time() {
        let mut reader = DropsReader::open(&NetNs::Current, "lo").expect("there is a table");
        let first = reader.read();
        assert_eq!(reader.read().since(first), InterfaceDrops::default());
    }
}
