//! Network namespaces of a test's own, gone when the guard drops.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tailwater::xdp::NetNs;

/// Runs a command and panics with its error output when it fails.
pub(crate) fn run(command: &str) -> String {
    let (ok, out, err) = try_run(command);
    assert!(ok, "{command}: {err}");
    out
}

/// Runs a command; gives whether it succeeded and what it printed.
pub(crate) fn try_run(command: &str) -> (bool, String, String) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().expect("a command"))
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// Two namespaces with a veth pair between them, `a0` in the first and `b0` in the second.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) a: String,
    pub(crate) b: String,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Whether tests that need root and AF_XDP can run; says why not, and fails where they must.
pub(crate) fn available() -> bool {
    let reason = if !nix::unistd::geteuid().is_root() {
        "not root"
    } else if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        "this kernel has no BTF"
    } else if !try_run("ip -V").0 {
        "there is no `ip` (apt-get install iproute2)"
    } else {
        return true;
    };
    let must = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!must, "the AF_XDP tests cannot run: {reason}");
    println!("skipped: {reason}");
    false
}

/// Whether this kernel forwards by segments (`CONFIG_IPV6_SEG6_LWTUNNEL`); says so when it does not.
///
/// Not a failure under `CI`: no set-up can add it to a running kernel, and others are built without.
/// What Linux does with segments is held by its recorded vectors on every machine.
pub(crate) fn has_seg6local() -> bool {
    let ns = format!("tw-t{}-seg6", std::process::id());
    run(&format!("ip netns add {ns}"));
    run(&format!("ip -n {ns} link set lo up"));
    let route = "fcbb:bb00:1::/48 encap seg6local action End flavors next-csid dev lo";
    let (has, _, error) = try_run(&format!("ip -n {ns} -6 route add {route}"));
    run(&format!("ip netns del {ns}"));
    if !has {
        println!("skipped: this kernel has no seg6local with NEXT-C-SID: {}", error.trim());
    }
    has
}

impl Pair {
    /// A pair with `queues` queues at both ends and the given MTU, both ends up.
    pub(crate) fn new(queues: u32, mtu: u32) -> Self {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("tw-t{}-{n}{end}", std::process::id());
        let pair = Self { a: name("a"), b: name("b") };
        for ns in [&pair.a, &pair.b] {
            run(&format!("ip netns add {ns}"));
            quiet(ns);
        }
        pair.link("a0", "b0", queues, mtu);
        pair
    }

    /// One more veth pair between the two namespaces.
    pub(crate) fn link(&self, a: &str, b: &str, queues: u32, mtu: u32) {
        let (na, nb) = (&self.a, &self.b);
        let q = format!("numrxqueues {queues} numtxqueues {queues}");
        run(&format!("ip -n {na} link add {a} {q} type veth peer name {b} netns {nb} {q}"));
        for (ns, end) in [(na, a), (nb, b)] {
            run(&format!("ip -n {ns} link set {end} mtu {mtu} up"));
        }
    }

    pub(crate) fn in_a(&self) -> NetNs {
        NetNs::Named(self.a.clone())
    }

    pub(crate) fn in_b(&self) -> NetNs {
        NetNs::Named(self.b.clone())
    }
}

/// Nothing in the namespace speaks on its own.
fn quiet(ns: &str) {
    for scope in ["all", "default"] {
        let (ok, _, err) =
            try_run(&format!("ip netns exec {ns} sysctl -qw net.ipv6.conf.{scope}.disable_ipv6=1"));
        assert!(ok || err.contains("No such file"), "{err}");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for ns in [&self.a, &self.b] {
            let _ = try_run(&format!("ip netns del {ns}"));
        }
    }
}
