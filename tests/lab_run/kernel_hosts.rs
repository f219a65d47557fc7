//! Linux hosts on our switch: their programs work, and every checksum on the wire is right.

use std::process::{Child, Command, Stdio};

use crate::lab::{Lab, stderr, stdout, tailwater, tool, until};
use crate::namespaces::{self, try_run};
use crate::ping::{DEADLINE, replies};

/// What ping says of its replies: how many, and the least round trip in milliseconds.
///
/// Ping gives up on late replies after twice the longest round trip, which a busy machine exceeds;
/// with a deadline it waits for as many replies as it was to send. That nothing was lost on the way
/// is asked of the lab's books.
fn ping(lab: &Lab, node: &str, arguments: &str) -> (u64, f64) {
    let deadline = if arguments.contains("-W") { "" } else { DEADLINE };
    let output = lab.exec(node, &format!("ping -q {deadline} {arguments}"));
    let asked = arguments.split(' ').skip_while(|word| *word != "-c").nth(1);
    let received = replies(&output, asked.and_then(|count| count.parse().ok()).unwrap_or(u64::MAX));
    let text = stdout(&output);
    let least = text.lines().find_map(|line| line.split(" = ").nth(1)?.split('/').next());
    (received, least.and_then(|ms| ms.parse().ok()).unwrap_or(0.0))
}

/// A program in a node that runs beside the test.
struct Beside(Child);

impl Beside {
    fn start(lab: &Lab, node: &str, command: &str) -> Self {
        let netns = lab.netns(node);
        let child = Command::new("ip")
            .args(["netns", "exec", &netns])
            .args(command.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("it starts"))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an iperf3 server for one test and waits until it listens.
fn iperf_server(lab: &Lab, node: &str) -> Beside {
    let server = Beside::start(lab, node, "iperf3 -s -1");
    until("iperf3 listens", || lab.exec_ok(node, "ss -Hltn").contains(":5201").then_some(()));
    server
}

#[test]
fn ping_iperf_and_checksums_between_two_linux_hosts() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::testbed("two-hosts", &[]);
    let up = lab.up(&[]);
    assert_eq!(ping(&lab, "h1", "-c 100 -i 0.01 10.0.0.2").0, 100, "nothing is lost");
    assert_eq!(ping(&lab, "h1", "-c 5 -i 0.01 -M do -s 8972 10.0.0.2").0, 5, "jumbo frames");
    assert_eq!(ping(&lab, "h2", "-6 -c 5 -i 0.01 fd00::1").0, 5);
    assert_eq!(ping(&lab, "h2", "-6 -c 5 -i 0.01 -M do -s 8952 fd00::1").0, 5);

    let capture = lab.dir("h2.pcap");
    let command =
        format!("tcpdump -Z root -q -U -i eth0 -w {} -c 600 ip or ip6", capture.display());
    let mut tcpdump = Beside::start(&lab, "h2", &command);
    let has_begun = format!("test -s {}", capture.display());
    until("tcpdump has its file", || try_run(&has_begun).0.then_some(()));
    for client in ["-c 10.0.0.2 -t 1", "-6 -c fd00::2 -t 1", "-u -b 50M -l 1200 -c 10.0.0.2 -t 1"] {
        let _server = iperf_server(&lab, "h2");
        let output = lab.exec_ok("h1", &format!("iperf3 -J {client}"));
        let result: serde_json::Value = serde_json::from_str(&output).expect("JSON");
        let end = &result["end"];
        let bytes = end["sum_received"]["bytes"].as_u64().or_else(|| end["sum"]["bytes"].as_u64());
        assert!(bytes > Some(1_000_000), "{client}: {end}");
    }
    tcpdump.0.wait().expect("600 frames came");
    let file = capture.display();
    let checks = "-o ip.check_checksum:TRUE -o tcp.check_checksum:TRUE -o udp.check_checksum:TRUE";
    // 0 is bad, 1 good.
    let fields = "-e ip.checksum.status -e tcp.checksum.status -e udp.checksum.status";
    let output = tool(&format!("tshark -r {file} {checks} -T fields {fields}"));
    let (mut good, mut bad) = (0, 0);
    // An MSS-sized segment that the sender's stack cut itself is checked like any other.
    for status in output.split(['\t', '\n', ',']) {
        good += u64::from(status == "1" || status == "Good");
        bad += u64::from(status == "0" || status == "Bad");
    }
    assert_eq!(bad, 0);
    assert!(good >= 600, "{good} checksums were looked at");

    let status = tailwater(&["lab", "status", &lab.name, "--json"]).output().expect("it runs");
    let status: serde_json::Value = serde_json::from_str(&stdout(&status)).expect("JSON");
    assert_eq!(status[0]["status"]["clock"], "free");
    let top = tailwater(&["top", &lab.name, "--count", "1"]).output().expect("it runs");
    assert!(stdout(&top).contains("s1"), "{}{}", stdout(&top), stderr(&top));
    assert_eq!(lab.exec("h1", "sh -c false").status.code(), Some(1));
    up.down();
    let report = lab.assert_sound("up");
    assert_eq!(report["switches"]["s1"]["drops"]["total"], 0);
    assert!(report["lateness_ns"]["count"].as_u64() > Some(100));
}

#[test]
fn a_link_that_is_set_down_and_its_delay_act_in_both_directions() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::testbed("two-hosts", &[("delay = \"0us\"", "delay = \"2ms\"")]);
    let up = lab.up(&[]);
    // Two links, there and back.
    let (received, least) = ping(&lab, "h1", "-c 10 -i 0.01 10.0.0.2");
    assert_eq!(received, 10);
    assert!(least >= 8.0, "{least} ms over four times 2 ms");
    lab.set("links.h1:eth0-s1:1.delay=10ms");
    let (_, least) = ping(&lab, "h1", "-c 5 -i 0.01 10.0.0.2");
    assert!(least >= 24.0, "{least} ms over twice 10 ms and twice 2 ms");
    lab.set("links.h1:eth0-s1:1.delay=0us");
    lab.set("links.h1:eth0-s1:1.down=true");
    for (node, to) in [("h1", "10.0.0.2"), ("h2", "10.0.0.1")] {
        assert_eq!(ping(&lab, node, &format!("-c 3 -i 0.01 -W 0.3 {to}")).0, 0);
    }
    let heard = lab.exec_ok("h1", "cat /sys/class/net/eth0/statistics/rx_packets");
    assert_eq!(ping(&lab, "h2", "-c 3 -i 0.01 -W 0.3 10.0.0.1").0, 0);
    let now = lab.exec_ok("h1", "cat /sys/class/net/eth0/statistics/rx_packets");
    assert_eq!(now, heard, "the link is down towards the kernel host too");
    lab.set("links.h1:eth0-s1:1.down=false");
    assert_eq!(ping(&lab, "h1", "-c 10 -i 0.01 10.0.0.2").0, 10);
    lab.set("links.h1:eth0-s1:1.loss=100%");
    assert_eq!(ping(&lab, "h1", "-c 3 -i 0.01 -W 0.3 10.0.0.2").0, 0);
    up.down();
    let report = lab.assert_sound("up");
    // What h1 sent was lost on the link; what was for h1 the switch dropped, since it was told.
    let link = &report["links"]["h1:eth0-s1:1"];
    assert!(link["lost"].as_u64() >= Some(6), "{link}");
    let drops = &report["switches"]["s1"]["drops"];
    assert!(drops["total"].as_u64() >= Some(6), "{drops}");
    assert_eq!(report["links"]["h2:eth0-s1:2"]["lost"], 0);
}

/// A Linux host and an agent on one switch, without static neighbours for what is asked here.
const AGENT: &str = r#"
[defaults]
mtu = 9000
link = { rate = "10Gbps", delay = "0us" }
[switch.s1]
[host.h1]
kind = "kernel"
ipv4 = "10.0.0.1/24"
ipv6 = "fd00::1/64"
[host.h2]
ipv4 = "10.0.0.2/24"
ipv6 = "fd00::2/64"
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["h2:eth0", "s1:2"]
"#;

#[test]
fn an_agent_answers_a_linux_host() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(AGENT);
    let up = lab.up(&[]);
    // ARP and neighbour discovery by the agent itself.
    lab.exec_ok("h1", "ip neigh flush nud permanent dev eth0");
    lab.exec_ok("h1", "ip neigh flush all");
    assert_eq!(ping(&lab, "h1", "-c 20 -i 0.01 10.0.0.2").0, 20);
    assert_eq!(ping(&lab, "h1", "-6 -c 20 -i 0.01 fd00::2").0, 20);
    let neighbours = lab.exec_ok("h1", "ip neigh show dev eth0");
    for address in ["10.0.0.2 lladdr 02:77:48:00:02:00", "fd00::2 lladdr 02:77:48:00:02:00"] {
        assert!(neighbours.contains(address), "{neighbours}");
    }
    assert_eq!(ping(&lab, "h1", "-c 5 -i 0.01 -M do -s 8972 10.0.0.2").0, 5);
    assert_eq!(ping(&lab, "h1", "-6 -c 5 -i 0.01 -s 8952 fd00::2").0, 5);
    up.down();
    let report = lab.assert_sound("up");
    assert!(report["hosts"]["h2"]["transmitted"].as_u64() >= Some(50));
}

#[test]
fn two_labs_stand_at_once_with_the_same_addresses() {
    if !namespaces::available() {
        return;
    }
    let (one, two) = (Lab::testbed("two-hosts", &[]), Lab::testbed("two-hosts", &[]));
    let (up_one, up_two) = (one.up(&[]), two.up(&[]));
    assert_eq!(ping(&one, "h1", "-c 10 -i 0.01 10.0.0.2").0, 10);
    let again = one.command(&["lab", "up"], "again", &["--detach"]).output().expect("it runs");
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("tailwater lab down"), "{}", stderr(&again));
    up_one.down();
    assert_eq!(ping(&two, "h2", "-c 10 -i 0.01 10.0.0.1").0, 10, "the other lives on");
    up_two.down();
}

/// Linux's seg6local endpoints before and after ours, in both directions.
#[test]
fn linux_and_ours_walk_one_path_of_segments() {
    if !namespaces::available() || !namespaces::has_seg6local() {
        return;
    }
    let fewer = [("frames = 500", "frames = 100"), ("== 500", "== 100"), (">= 1000", ">= 200")];
    let lab = Lab::testbed("usid-linux", &fewer);
    lab.run(&["lab", "run"], "lab", &["--quiet"], 0);
    let report = lab.assert_sound("lab");
    // Linux may have something of its own to say beside the streams.
    let through_r3 = report["switches"]["s1"]["ports"]["3"]["rx_frames"].as_u64();
    assert!(through_r3 >= Some(200), "through r3 as well: {through_r3:?}");
    lab.assert_gone();
    // Without our own segment the path ends at ours.
    let without = [fewer[0], fewer[1], fewer[2], ("usid = \"5\"", "usid = \"55\"")];
    let lab = Lab::testbed("usid-linux", &without);
    lab.run(&["lab", "run"], "lab", &["--quiet"], 3);
    let report = lab.report("lab");
    assert_eq!(report["switches"]["s1"]["drops"]["no_route"], 200);
    lab.assert_gone();
}
