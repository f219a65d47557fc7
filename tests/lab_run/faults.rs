//! Interfaces that go down, change or vanish under a running lab, and consumers that stall.

use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use tailwater::xdp::NetNs;

use super::ends::ENDLESS;
use crate::lab::{Lab, stdout, tool, until};
use crate::namespaces::{self, try_run};
use crate::ping::{DEADLINE, replies};

const H1_CAME: &str = "/hosts/h1/rx_frames";
const H2_CAME: &str = "/hosts/h2/rx_frames";

fn counted(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

#[test]
fn a_link_that_goes_down_is_told_to_both_ends_and_comes_back() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(ENDLESS);
    let running = lab.start("run", &["--clock", "free"]);
    lab.wait_for_more(H2_CAME, 100);
    for (node, interface) in [("s1", "swp2"), ("h2", "eth0")] {
        let netns = lab.netns(node);
        tool(&format!("ip -n {netns} link set {interface} down"));
        lab.wait_for_more("/hosts/h2/drops/link_down", 100);
        lab.wait_for_more("/switches/s1/drops/total", 100);
        let before = lab.counter(H2_CAME);
        // The other port goes on serving.
        lab.wait_for_more("/switches/s1/ports/1/rx_frames", 100);
        assert_eq!(lab.counter(H2_CAME), before, "nothing comes over a link that is down");
        tool(&format!("ip -n {netns} link set {interface} up"));
        lab.wait_for_more(H2_CAME, 100);
        lab.wait_for_more(H1_CAME, 100);
    }
    running.interrupt();
    let report = lab.assert_sound("run");
    assert!(counted(&report, "/switches/s1/drops/total") >= 200);
}

#[test]
fn frames_over_a_shrunken_mtu_are_refused_and_counted() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(ENDLESS);
    let running = lab.start("run", &["--clock", "free"]);
    let netns = lab.netns("s1");
    lab.wait_for_more(H1_CAME, 100);
    tool(&format!("ip -n {netns} link set swp1 mtu 500"));
    // The short frames of the other direction pass; the long ones are refused at the port.
    let came = until("the port refuses", || {
        let before = lab.counter(H1_CAME);
        lab.wait_for_more("/switches/s1/ports/1/tx_frames", 50);
        (lab.counter(H1_CAME) == before).then_some(before)
    });
    lab.wait_for_more(H2_CAME, 100);
    assert_eq!(lab.counter(H1_CAME), came);
    tool(&format!("ip -n {netns} link set swp1 mtu 1500"));
    lab.wait_for_more(H1_CAME, 100);
    running.interrupt();
    let report = lab.assert_sound("run");
    let refused = counted(&report, "/xdp/s1:1/tx_refused_oversize");
    assert!(refused >= 50, "{refused}");
    let link = &report["links"]["h1:eth0-s1:1"];
    assert!(
        counted(link, "/kernel_dropped") >= refused,
        "{refused} refused: {link} {}",
        report["xdp"]
    );
    assert_eq!(report["links"]["h2:eth0-s1:2"]["kernel_dropped"], 0);
}

#[test]
fn a_deleted_pair_is_survived_and_taken_again_when_it_is_back() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(ENDLESS);
    let running = lab.start("run", &["--clock", "free"]);
    let (s1, h1) = (lab.netns("s1"), lab.netns("h1"));
    for _ in 0..3 {
        lab.wait_for_more(H2_CAME, 100);
        tool(&format!("ip -n {s1} link del swp1"));
        lab.wait_for_more("/hosts/h1/drops/link_down", 100);
        lab.wait_for_more("/switches/s1/ports/2/rx_frames", 100);
        tool(&format!("ip -n {s1} link add swp1 type veth peer name eth0 netns {h1}"));
        tool(&format!("ip -n {h1} link set eth0 up"));
        tool(&format!("ip -n {s1} link set swp1 up"));
        lab.wait_for_more(H1_CAME, 100);
    }
    running.interrupt();
    let report = lab.assert_sound("run");
    let link = &report["links"]["h1:eth0-s1:1"];
    let sum = counted(link, "/delivered")
        + counted(link, "/lost")
        + counted(link, "/in_flight")
        + counted(link, "/kernel_dropped");
    assert_eq!(sum, counted(link, "/sent"), "{link}");
}

/// A namespace with an end of a pair whose other end is a port of the lab.
struct Outside(String);

impl Outside {
    fn new(lab: &Lab) -> Self {
        let outside = Self(format!("tw-x-{}", lab.name));
        tool(&format!("ip netns add {}", outside.0));
        outside.plug();
        outside
    }

    fn plug(&self) {
        let ns = &self.0;
        tool(&format!("ip -n {ns} link add port type veth peer name far"));
        tool(&format!("ip -n {ns} link set port up"));
        tool(&format!("ip -n {ns} addr add 10.0.0.9/24 dev far"));
        tool(&format!("ip -n {ns} link set far up"));
        // What the kernel leaves to hardware would not be there.
        tool(&format!("ip netns exec {ns} ethtool -K far tx off"));
    }

    fn unplug(&self) {
        tool(&format!("ip -n {} link del port", self.0));
    }

    fn pings(&self) -> bool {
        let ns = &self.0;
        try_run(&format!("ip netns exec {ns} ping -q -c 3 -i 0.01 -W 1 10.0.0.1")).0
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = try_run(&format!("ip netns del {}", self.0));
    }
}

#[test]
fn an_external_interface_is_a_port_for_as_long_as_it_is_there_and_is_left_alone() {
    if !namespaces::available() {
        return;
    }
    let text = |netns: &str| {
        format!(
            "[switch.s1]\n[host.h1]\nipv4 = \"10.0.0.1/24\"\n\
             [[link]]\nends = [\"h1:eth0\", \"s1:1\"]\n\
             [[external]]\nport = \"s1:2\"\ninterface = \"port\"\nnetns = \"{netns}\"\n"
        )
    };
    let lab = Lab::new("");
    let outside = Outside::new(&lab);
    let head = format!("name = \"{}\"\n", lab.name);
    std::fs::write(lab.file(), head + &text(&outside.0)).expect("writes");
    let up = lab.up(&[]);
    assert!(outside.pings());
    for _ in 0..2 {
        outside.unplug();
        outside.plug();
        until("the port is taken again", || outside.pings().then_some(()));
    }
    up.down();
    lab.assert_sound("up");
    let left = tool(&format!("ip -n {} -o link show port", outside.0));
    assert!(left.contains("port") && !left.contains("xdp"), "{left}");
}

#[test]
fn a_stalled_lab_takes_up_again_and_what_did_not_fit_is_counted() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::testbed("two-hosts", &[]);
    let up = lab.up(&[]);
    let pid = up.pid();
    let pings = |deadline: &str| {
        let output = lab.exec("h1", &format!("ping -q {deadline} -c 10 -i 0.01 10.0.0.2"));
        replies(&output, 10)
    };
    assert_eq!(pings(DEADLINE), 10);
    kill(pid, Signal::SIGSTOP).expect("it runs");
    // More than the rings hold, from a host whose peer does not look.
    let sent = NetNs::Named(lab.netns("h1"))
        .run(|| {
            #[allow(clippy::disallowed_types, reason = "a host of the test is a program")]
            let socket = std::net::UdpSocket::bind("10.0.0.1:0").expect("a socket");
            (0..12_000).filter(|_| socket.send_to(&[7; 100], "10.0.0.2:9").is_ok()).count() as u64
        })
        .expect("the namespace is there");
    assert!(sent > 8_000, "{sent}");
    kill(pid, Signal::SIGCONT).expect("it is there");
    until("RX resumes", || (pings("") == 10).then_some(()));
    up.down();
    let report = lab.assert_sound("up");
    let received = counted(&report, "/switches/s1/received");
    assert!(received > 2_000, "what the rings held was served: {received}");
    let full = counted(&report, "/xdp/s1:1/xsk_rx_ring_full");
    assert!(full > 1_000, "{}", report["xdp"]);
    let link = &report["links"]["h1:eth0-s1:1"];
    assert!(counted(link, "/kernel_dropped") >= full, "{link}");
}

#[test]
fn a_reader_that_stops_does_not_stop_the_lab() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::testbed("two-hosts", &[]);
    let up = lab.up(&[]);
    NetNs::Named(lab.netns("h2"))
        .run(|| {
            #[allow(clippy::disallowed_types, reason = "a host of the test is a program")]
            let bind = |address: &str| std::net::UdpSocket::bind(address).expect("a socket");
            // Bound and never read.
            let _deaf = bind("10.0.0.2:9");
            NetNs::Named(lab.netns("h1"))
                .run(|| {
                    let socket = bind("10.0.0.1:0");
                    for _ in 0..20_000 {
                        let _ = socket.send_to(&[7; 1_000], "10.0.0.2:9");
                    }
                })
                .expect("the namespace is there");
        })
        .expect("the namespace is there");
    until("the switch has room again", || {
        let text = stdout(&lab.exec("h1", "ping -q -c 10 -i 0.01 10.0.0.2"));
        text.contains("10 received").then_some(())
    });
    up.down();
    lab.assert_sound("up");
}
