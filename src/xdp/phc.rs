//! A NIC's own clock (PHC): which one an interface has, and reading it beside the OS's.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use super::clock::monotonic_ns;
use super::clock_line::ClockReading;
use super::sys;

/// How many times a clock is read for one [`ClockReading`]: the narrowest counts.
const SAMPLES: u32 = 8;
/// Of `linux/ptp_clock.h`.
const PTP_MAX_SAMPLES: usize = 25;

/// `struct ptp_clock_time`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PtpTime {
    sec: i64,
    nsec: u32,
    reserved: u32,
}

impl PtpTime {
    fn ns(self) -> u64 {
        u64::try_from(self.sec).unwrap_or(0) * 1_000_000_000 + u64::from(self.nsec)
    }
}

/// `struct ptp_sys_offset_extended`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PtpSysOffsetExtended {
    samples: u32,
    clock: i32,
    reserved: [u32; 2],
    /// The OS's clock, the device's, the OS's.
    times: [[PtpTime; 3]; PTP_MAX_SAMPLES],
}

// SAFETY: integers without padding.
unsafe impl sys::Plain for PtpSysOffsetExtended {}

const PTP_SYS_OFFSET_EXTENDED: libc::Ioctl =
    nix::request_code_readwrite!(b'=', 9, size_of::<PtpSysOffsetExtended>()) as libc::Ioctl;

/// How a clock is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// The driver reads both clocks, side by side (`PTP_SYS_OFFSET_EXTENDED`, on the monotonic clock
    /// from Linux 6.12 on).
    Driver,
    /// Three system calls one after another: wider, and any kernel can.
    Calls,
}

/// The clock of a NIC, open.
#[derive(Debug)]
pub struct Phc {
    file: File,
    index: u32,
    method: Method,
}

impl Phc {
    /// Opens the clock `/dev/ptpN`; takes root, or the right to read that file.
    ///
    /// # Errors
    /// When it cannot be opened or read.
    pub fn open(index: u32) -> io::Result<Self> {
        let file = File::open(format!("/dev/ptp{index}"))?;
        let mut phc = Self { file, index, method: Method::Driver };
        if phc.read().is_err() {
            phc.method = Method::Calls;
            phc.read()?;
        }
        Ok(phc)
    }

    /// The device's file.
    pub fn path(&self) -> String {
        format!("/dev/ptp{}", self.index)
    }

    /// Reads the clock beside the OS's monotonic clock: some 10 us, and no capability.
    ///
    /// # Errors
    /// When the clock has gone with its NIC.
    pub fn read(&self) -> io::Result<ClockReading> {
        let readings = match self.method {
            Method::Driver => self.read_by_driver()?,
            Method::Calls => {
                // What the kernel makes of a descriptor in place of a clock's number.
                let clock = (!self.file.as_raw_fd() << 3) | 3;
                (0..SAMPLES).map(|_| read_by_calls(clock)).collect::<io::Result<_>>()?
            }
        };
        ClockReading::narrowest(readings).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn read_by_driver(&self) -> io::Result<Vec<ClockReading>> {
        let mut offsets = PtpSysOffsetExtended {
            samples: SAMPLES,
            clock: libc::CLOCK_MONOTONIC,
            reserved: [0; 2],
            times: [[PtpTime::default(); 3]; PTP_MAX_SAMPLES],
        };
        sys::plain_request(self.file.as_fd(), PTP_SYS_OFFSET_EXTENDED, &mut offsets)?;
        let reading = |[before, device, after]: &[PtpTime; 3]| ClockReading {
            before_ns: before.ns(),
            device_ns: device.ns(),
            after_ns: after.ns(),
        };
        Ok(offsets.times.iter().take(SAMPLES as usize).map(reading).collect())
    }
}

fn read_by_calls(clock: libc::clockid_t) -> io::Result<ClockReading> {
    let before_ns = monotonic_ns();
    let device = nix::time::clock_gettime(nix::time::ClockId::from_raw(clock))?;
    let after_ns = monotonic_ns();
    let negative = |_| io::Error::from(io::ErrorKind::InvalidData);
    let sec = u64::try_from(device.tv_sec()).map_err(negative)?;
    let nsec = u64::try_from(device.tv_nsec()).map_err(negative)?;
    Ok(ClockReading { before_ns, device_ns: sec * 1_000_000_000 + nsec, after_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::clock_line::ClockLine;

    /// Any clock that runs evenly will do for the arithmetic; this one began at another time and is
    /// not slewed.
    #[test]
    fn a_clock_read_by_calls_maps_to_the_monotonic_clock() {
        let clock = libc::CLOCK_MONOTONIC_RAW;
        let read = || {
            let readings = (0..SAMPLES).map(|_| read_by_calls(clock).expect("there is one"));
            ClockReading::narrowest(readings).expect("some")
        };
        let first = read();
        while monotonic_ns() < first.after_ns + 20_000_000 {
            std::hint::spin_loop();
        }
        let second = read();
        let line = ClockLine::through(first, second).expect("nobody sets it");
        assert!(line.drift_ppb().abs() < 1_000_000, "{line:?}");
        let third = read_by_calls(clock).expect("there is one");
        let (least, most) = (third.before_ns, third.after_ns);
        let found = line.os_ns(third.device_ns);
        let error = 10 * line.error_ns() + 1_000;
        assert!((least - error..=most + error).contains(&found), "{least} {found} {most}");
    }

    #[test]
    fn a_clock_that_is_not_there_is_an_error() {
        assert_eq!(Phc::open(u32::MAX).expect_err("none").kind(), io::ErrorKind::NotFound);
        // Not a PTP clock.
        let file = File::open("/dev/null").expect("there is one");
        assert!(read_by_calls((!file.as_raw_fd() << 3) | 3).is_err());
    }

    #[test]
    fn the_request_is_as_large_as_the_kernel_s() {
        assert_eq!(size_of::<PtpSysOffsetExtended>(), 1_216);
        assert_eq!(PTP_SYS_OFFSET_EXTENDED & 0xffff, 0x3d09);
    }
}
