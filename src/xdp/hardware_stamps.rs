//! Whether an interface can stamp received frames by its own clock, and what mends it if not.

use std::io;

use super::interface::Interface;
use super::netns::NetNs;
use super::phc::Phc;
use super::rx_metadata;

/// Why received frames of an interface get no stamps of its hardware.
#[derive(Debug, thiserror::Error)]
pub enum NoHardwareStamps {
    /// The interface or namespace is not there.
    #[error("cannot look at interface {interface}: {source}")]
    Interface {
        /// The interface.
        interface: String,
        /// Why.
        source: io::Error,
    },
    /// The driver has no such function for XDP programs.
    #[error("the driver of interface {interface} gives XDP no receive time stamps")]
    Driver {
        /// The interface.
        interface: String,
    },
    /// The interface has no clock of its own: veth, and every other that is not hardware.
    #[error("interface {interface} has no clock of its own (see `ethtool -T {interface}`)")]
    NoClock {
        /// The interface.
        interface: String,
    },
    /// Stamping is switched off.
    #[error(
        "interface {interface} does not stamp all that it receives: `{}` (apt-get install \
         linuxptp) makes it",
        switch_on(interface)
    )]
    SwitchedOff {
        /// The interface.
        interface: String,
    },
    /// The clock cannot be read.
    #[error("cannot read the clock /dev/ptp{index} of interface {interface}: {source}")]
    Clock {
        /// The interface.
        interface: String,
        /// The clock.
        index: u32,
        /// Why.
        source: io::Error,
    },
}

/// The command that makes an interface stamp whatever it receives.
pub fn switch_on(interface: &str) -> String {
    format!("hwtstamp_ctl -i {interface} -r 1")
}

/// Looks whether an interface stamps received frames, and opens the clock that it does it by. What
/// is switched off stays off: the setting is everybody's.
///
/// # Errors
/// [`NoHardwareStamps`], with what mends it.
pub fn find(netns: &NetNs, name: &str) -> Result<Phc, NoHardwareStamps> {
    let look = || {
        let interface = Interface::open(name)?;
        let index = interface.index()?;
        // A kernel that does not know is asked by loading the program.
        let driver = rx_metadata::has_timestamps(index).unwrap_or(None);
        io::Result::Ok((driver, interface.phc_index(), interface.stamps_all_received()))
    };
    let interface = || name.to_owned();
    let (driver, clock, switched_on) = netns
        .run(look)
        .and_then(|found| found)
        .map_err(|source| NoHardwareStamps::Interface { interface: interface(), source })?;
    if driver == Some(false) {
        return Err(NoHardwareStamps::Driver { interface: interface() });
    }
    let Some(index) = clock else {
        return Err(NoHardwareStamps::NoClock { interface: interface() });
    };
    if switched_on == Some(false) {
        return Err(NoHardwareStamps::SwitchedOff { interface: interface() });
    }
    Phc::open(index).map_err(|source| NoHardwareStamps::Clock {
        interface: interface(),
        index,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_hardware_has_no_stamps_of_it() {
        let none = find(&NetNs::Current, "lo").expect_err("the loopback");
        assert!(none.to_string().contains("interface lo"), "{none}");
        let none = find(&NetNs::Current, "tw-no-such").expect_err("no such interface");
        assert!(matches!(none, NoHardwareStamps::Interface { .. }), "{none}");
        let off = NoHardwareStamps::SwitchedOff { interface: "eth1".to_owned() };
        assert!(off.to_string().contains("`hwtstamp_ctl -i eth1 -r 1`"), "{off}");
    }
}
