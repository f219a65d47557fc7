//! `tailwater doctor`: whether this machine has what tailwater needs.

use std::fmt;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::Failure;
use super::outcome::print;
use crate::xdp::nic::{self, Nic};
use crate::xdp::{LinkState, NetNs, NoHardwareStamps, XdpMode, hardware_stamps, privileges, probe};

/// What `doctor` was asked.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tailwater doctor\n  tailwater doctor --interface eth1")]
pub struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Also check this interface
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    Warn,
    Fail,
}

impl Status {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        }
    }
}

#[derive(Debug)]
struct Check {
    name: &'static str,
    status: Status,
    detail: String,
    /// The command that mends it.
    mend: Option<String>,
}

fn ok(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, status: Status::Ok, detail: detail.into(), mend: None }
}

fn warn(name: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Check {
    Check { name, status: Status::Warn, detail: detail.into(), mend: Some(mend.into()) }
}

fn fail(name: &'static str, detail: impl Into<String>, mend: impl Into<String>) -> Check {
    Check { name, status: Status::Fail, detail: detail.into(), mend: Some(mend.into()) }
}

impl DoctorArgs {
    /// Runs the checks and prints them.
    ///
    /// # Errors
    /// [`Failure::HostLacks`] when one failed.
    pub fn run(&self) -> Result<(), Failure> {
        let mut checks = vec![kernel(), capabilities(), btf(), memlock(), af_xdp()];
        checks.extend([huge_pages(), clock_source(), cores()]);
        checks.extend(tools());
        if let Some(name) = &self.interface {
            checks.extend(interface(name));
        }
        if self.json {
            print(&format!("{:#}\n", document(&checks)))?;
        } else {
            print(&checks.iter().map(Check::to_string).collect::<String>())?;
        }
        let failed = checks.iter().filter(|check| check.status == Status::Fail);
        let failed: Vec<&str> = failed.map(|check| check.name).collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure::HostLacks(format!("this machine lacks: {}", failed.join(", "))))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<4}  {:<12}  {}", self.status.name(), self.name, self.detail)?;
        match &self.mend {
            Some(mend) => writeln!(f, "{:<4}  {:<12}  mend: {mend}", "", ""),
            None => Ok(()),
        }
    }
}

fn document(checks: &[Check]) -> serde_json::Value {
    let list: Vec<_> = checks
        .iter()
        .map(|check| {
            json!({
                "name": check.name,
                "status": check.status.name(),
                "detail": check.detail,
                "mend": check.mend,
            })
        })
        .collect();
    let held = checks.iter().all(|check| check.status != Status::Fail);
    json!({ "schema": 1, "ok": held, "checks": list })
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn kernel() -> Check {
    let release = read("/proc/sys/kernel/osrelease");
    let newer = "boot a newer kernel: apt-get install -t bookworm-backports linux-image-amd64";
    match version(&release) {
        Some(version) if version >= (6, 6) => ok("kernel", release),
        Some(version) if version >= (5, 18) => {
            warn("kernel", format!("{release}: before 6.6 AF_XDP has no jumbo frames"), newer)
        }
        Some(_) => fail(
            "kernel",
            format!("{release}: before 5.18 XDP has no multi-buffer programs"),
            newer,
        ),
        None => warn("kernel", format!("`{release}` is not a version"), "uname -r"),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn capabilities() -> Check {
    let missing: Vec<String> = privileges::missing().iter().map(|one| format!("{one:?}")).collect();
    if missing.is_empty() {
        return ok("capabilities", "those that opening AF_XDP takes are here");
    }
    let binary = std::env::current_exe().unwrap_or_default();
    fail(
        "capabilities",
        format!("missing {}", missing.join(", ")),
        format!(
            "sudo tailwater, or: sudo setcap cap_sys_admin,cap_net_admin,cap_net_raw,cap_bpf+ep {}",
            binary.display()
        ),
    )
}

fn btf() -> Check {
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        return ok("btf", "/sys/kernel/btf/vmlinux");
    }
    warn(
        "btf",
        "the kernel shows no type information",
        "boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
    )
}

fn memlock() -> Check {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    const WANTED: u64 = 256 << 20;
    let may_lock = caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_IPC_LOCK);
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((0, 0));
    if may_lock.unwrap_or(false) {
        return ok("memlock", "not limited (CAP_IPC_LOCK)");
    }
    if hard == RLIM_INFINITY || soft >= WANTED {
        return ok("memlock", format!("{} MiB", soft >> 20));
    }
    let detail = format!("{} KiB may be locked; a UMEM takes some hundred MiB", soft >> 10);
    fail("memlock", detail, "ulimit -l unlimited")
}

fn af_xdp() -> Check {
    match probe::probe() {
        Ok(found) => {
            let jumbo = if found.jumbo { "jumbo frames" } else { "no jumbo frames" };
            let detail = format!(
                "{} frames crossed a veth pair intact, {} mode, {jumbo}",
                found.frames,
                found.mode.name()
            );
            if found.mode == XdpMode::Native && found.jumbo {
                return ok("af_xdp", detail);
            }
            warn("af_xdp", detail, "boot a kernel of 6.6 or later")
        }
        Err(error) => {
            let mend = if privileges::missing().is_empty() {
                "boot a kernel with CONFIG_XDP_SOCKETS=y, CONFIG_BPF_SYSCALL=y and CONFIG_VETH=m"
            } else {
                "run it as root"
            };
            fail("af_xdp", error.to_string(), mend)
        }
    }
}

fn huge_pages() -> Check {
    let info = read("/proc/meminfo");
    let free = info
        .lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:")?.trim().parse::<u64>().ok())
        .unwrap_or(0);
    if free >= 64 {
        return ok("huge_pages", format!("{free} free"));
    }
    let detail = format!("{free} free: a UMEM uses ordinary pages instead, some per cent slower");
    warn("huge_pages", detail, "sysctl -w vm.nr_hugepages=256")
}

fn clock_source() -> Check {
    let current = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    match current.as_str() {
        "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page" => {
            ok("clock_source", current)
        }
        "" => warn("clock_source", "unknown", "cat /sys/devices/system/clocksource/*/*"),
        _ => warn(
            "clock_source",
            format!("{current}: each reading of the clock is a system call"),
            "boot with clocksource=tsc tsc=reliable when the TSC is stable",
        ),
    }
}

fn cores() -> Check {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if count >= 2 {
        return ok("cores", count.to_string());
    }
    warn("cores", "one: workers take turns on it, and latency measures that", "use two or more")
}

fn tools() -> Vec<Check> {
    // What works without a tool, and the Debian package that has it.
    const TOOLS: [(&str, &str, Option<&str>); 7] = [
        ("ip", "iproute2", None),
        ("ethtool", "ethtool", Some("offloads are set without it")),
        ("ping", "iputils-ping", Some("only hosts of the Linux stack use it")),
        ("tcpdump", "tcpdump", Some("only hosts of the Linux stack use it")),
        ("iperf3", "iperf3", Some("only hosts of the Linux stack use it")),
        ("tshark", "tshark", Some("the tests compare captures with it")),
        ("bpftool", "bpftool", Some("it shows attached programs")),
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<_> =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
    TOOLS
        .into_iter()
        .map(|(tool, package, without)| {
            if let Some(found) = places.iter().map(|at| at.join(tool)).find(|at| at.exists()) {
                return ok(tool, found.display().to_string());
            }
            let mend = format!("apt-get install {package}");
            match without {
                Some(without) => warn(tool, format!("not found; {without}"), mend),
                None => fail(tool, "not found; labs are built with it", mend),
            }
        })
        .collect()
}

fn interface(name: &str) -> Vec<Check> {
    let nic = match nic::inspect(&NetNs::Current, name) {
        Ok(nic) => nic,
        Err(error) => return vec![fail("interface", format!("{name}: {error}"), "ip link")],
    };
    let mut checks = vec![link(name, &nic), driver(name, &nic), zero_copy(&nic), rx_stamps(name)];
    let queues = format!("{} that can be bound", nic.queues);
    checks.push(ok("queues", queues));
    if nic.default_route {
        let mend = "take another interface, steer by a list, or give --allow-default-route";
        checks.push(warn("route", format!("{name} carries the default route"), mend));
    }
    if nic.harmful.is_empty() {
        checks.push(ok("offloads", "none that spoils frames for AF_XDP"));
    }
    for one in &nic.harmful {
        let detail = format!("{} is on: {}", one.name, one.effect);
        checks.push(warn("offloads", detail, format!("ethtool -K {name} {} off", one.name)));
    }
    checks
}

fn link(name: &str, nic: &Nic) -> Check {
    let mtu = nic.state.mtu_bytes;
    match nic.state.link {
        LinkState::Up => ok("link", format!("{name} is up, MTU {mtu}")),
        LinkState::NoCarrier => {
            warn("link", format!("{name} has no carrier"), "connect it, or set the other end up")
        }
        LinkState::AdminDown | LinkState::Vanished => {
            warn("link", format!("{name} is down"), format!("ip link set {name} up"))
        }
    }
}

fn driver(name: &str, nic: &Nic) -> Check {
    match nic.xdp {
        None => warn("xdp", "the kernel does not say (before 6.3)", "boot a newer kernel"),
        Some(xdp) if xdp.attached => warn(
            "xdp",
            format!("a program is attached to {name} already"),
            format!("ip link set dev {name} xdp off"),
        ),
        Some(xdp) if xdp.native => ok("xdp", "native, in the driver"),
        Some(_) => warn(
            "xdp",
            "the driver has no native XDP: generic mode is used, slower, and frames may be merged",
            format!("ethtool -K {name} gro off lro off"),
        ),
    }
}

fn zero_copy(nic: &Nic) -> Check {
    match nic.xdp {
        Some(xdp) if xdp.zero_copy => {
            let segments = xdp.zero_copy_descriptors_max;
            ok("zero_copy", format!("yes; a frame takes at most {segments} of its chunks"))
        }
        _ => ok("zero_copy", "no: frames are copied between the driver and the UMEM"),
    }
}

/// Software stamps serve where there are none: only what one command mends is worth a warning.
fn rx_stamps(name: &str) -> Check {
    match hardware_stamps::find(&NetNs::Current, name) {
        Ok(clock) => ok("rx_stamps", format!("hardware, by the clock {}", clock.path())),
        Err(NoHardwareStamps::SwitchedOff { .. }) => warn(
            "rx_stamps",
            format!("{name} could stamp received frames and does not"),
            hardware_stamps::switch_on(name),
        ),
        Err(none) => ok("rx_stamps", format!("software: {none}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels_are_read() {
        assert_eq!(version("6.18.44-x1"), Some((6, 18)));
        assert_eq!(version("5.10"), Some((5, 10)));
        assert_eq!(version("six"), None);
    }

    #[test]
    fn every_check_that_is_not_ok_says_how_to_mend_it() {
        let mut checks = vec![kernel(), capabilities(), btf(), memlock()];
        checks.extend([huge_pages(), clock_source(), cores()]);
        checks.extend(tools());
        checks.extend(interface("lo"));
        checks.extend(interface("tw-no-such"));
        for check in &checks {
            assert_eq!(check.status == Status::Ok, check.mend.is_none(), "{check:?}");
        }
        assert!(checks.iter().any(|check| check.status == Status::Fail), "no such interface");
        assert_eq!(document(&checks)["ok"], false);
    }
}
