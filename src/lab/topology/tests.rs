//! Tests of topology files: what they resolve to, and how each error looks.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::switch::memory::Alpha;
use crate::switch::{PortConfig, VlanMode};
use crate::units::{AnyRate, FrameRate};

const TWO: &str = r#"
name = "two"
[switch.s1]
[host.h1]
[host.h2]
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["h2:eth0", "s1:2"]
"#;

fn parse(text: &str) -> Topology {
    Topology::parse("test.toml", text).unwrap_or_else(|e| panic!("{}", e.render(false, false)))
}

const LEAF_SPINE: &str = include_str!("../../../netns-testbed/leaf-spine.toml");

#[test]
fn two_hosts_resolve_with_defaults() {
    let topology = parse(TWO);
    let config = &topology.switches[0].config;
    assert_eq!(config.ports.len(), 2);
    assert!(config.ports.iter().all(|port| port.flood && port.vlan == VlanMode::Access(1)));
    assert_eq!(topology.links[1].name, "h2:eth0-s1:2");
    assert_eq!(topology.links[1].ends[1].port, PortId(1));
    assert_eq!(topology.hosts[1].config.ipv4, Some(("10.77.0.2".parse().expect("an IP"), 16)));
    assert_eq!(topology.hosts[1].config.ipv6, Some(("fd77::2".parse().expect("an IP"), 64)));
    assert_eq!(topology.hosts[0].config.mac.to_string(), "02:77:48:00:01:00");
    assert_eq!(topology.run.clock, Clock::Gated, "every node is ours");
    assert_eq!(topology.hosts[0].attachment, Attachment::Link(0, 0));
}

/// What only the switch as a whole finds wrong points into the file too.
#[test]
fn a_switch_that_contradicts_itself_is_refused_at_its_place() {
    for (switch, points_at, says) in [
        ("queue_limit = \"1KB\"", "\"1KB\"", "queue 0 holds 1000 bytes"),
        ("mac_ageing = \"0s\"", "\"0s\"", "at least"),
        ("buffer = \"1KB\"", "\"1KB\"", "does not fit the memory"),
        ("port = { 1 = { rate = \"9Tbps\" } }", "\"9Tbps\"", "at most 8Tbps"),
        ("port = { 1 = { queue_limit = \"2B\" } }", "\"2B\"", "queue 0 holds 2 bytes"),
        ("forwarding = \"static\"\nmac_table_entries = 1", "1", "static entries"),
        ("lossless = [3]\nclass = { 3 = { xoff = \"1500B\" } }", "\"1500B\"", "holds no frame"),
        (
            "lossless = [3]\nclass = { 3 = { xoff = \"9KB\", xon = \"9KB\" } }",
            "\"9KB\"",
            "not below",
        ),
        ("class = { 0 = { limit = \"1KB\" } }", "\"1KB\"", "holds no frame"),
        (
            "buffer = \"10KB\"\nclass = { 0 = { dt_alpha = \"1/8\" } }",
            "\"1/8\"",
            "1/8 of the 9984 bytes that are shared is 1248 bytes at most",
        ),
        (
            "buffer = \"10KB\"\nqueue = { 2 = { dt_alpha = \"1/16\" } }",
            "\"1/16\"",
            "queue 2: dt_alpha: 1/16 of the 9984 bytes",
        ),
        (
            "buffer = \"50KB\"\nlossless = [3, 4]",
            "\"50KB\"",
            "too few for 4 headrooms with 54080 bytes in all",
        ),
        (
            "buffer = \"90KB\"\nclass = { 1 = { min = \"50KB\" } }",
            "\"90KB\"",
            "minima of groups with 100256 and of queues with 0",
        ),
        (
            "lossless = [3]\nqueue = { 3 = { limit = \"1MB\" } }",
            "\"1MB\"",
            "would drop them at its limit",
        ),
        (
            "lossless = [3]\nqueue = { 3 = { dt_alpha = \"8\" } }",
            "\"8\"",
            "would drop them at its limit",
        ),
        (
            "lossless = [3]\ntrim = { queues = [3], dscp = 16 }",
            "{ queues = [3], dscp = 16 }",
            "queue 3 takes frames of a lossless priority",
        ),
        (
            "lossless = [6]\ntrim = { queues = [0], dscp = 16 }",
            "{ queues = [0], dscp = 16 }",
            "priority 6 is lossless",
        ),
        (
            "trim = { queues = [6], dscp = 16 }",
            "{ queues = [6], dscp = 16 }",
            "takes the trimmed frames, and is trimmed itself",
        ),
        (
            "trim = { queues = [0], dscp = 16, size = \"1KB\" }",
            "{ queues = [0], dscp = 16, size = \"1KB\" }",
            "64 to 256",
        ),
        ("trim = { queues = [0], dscp = 64 }", "{ queues = [0], dscp = 64 }", "DSCP 64: 0 to 63"),
        ("class = { 3 = { xoff = \"1MB\" } }", "\"1MB\"", "is not lossless here"),
        ("lossless = [3]\nclass = { 3 = { limit = \"1MB\" } }", "\"1MB\"", "not limited"),
        ("lossless = [8]", "[8]", "a priority is 0 to 7, not 8"),
        ("class = { 9 = { min = \"1KB\" } }", "9", "a priority is 0 to 7"),
        ("trim = { queues = [8], dscp = 16 }", "[8]", "a queue is 0 to 7"),
        ("ecn = { kmin = \"2KB\", kmax = \"1KB\", pmax = \"5%\" }", "\"2KB\"", "above kmax, 1000"),
        ("ecn = { kmin = \"1KB\", kmax = \"2KB\", pmax = \"101%\" }", "\"101%\"", "101%"),
        (
            "ecn = { kmin = \"1KB\", kmax = \"20GB\", pmax = \"5%\" }",
            "\"20GB\"",
            "above 16000000000",
        ),
        ("ecn = { kmin = \"1KB\" }", "{ kmin = \"1KB\" }", "a curve has kmin, kmax and pmax"),
        (
            "ecn = { kmin = \"1KB\", kmax = \"2KB\", pmax = \"5%\", queues = [8] }",
            "8",
            "there is no queue 8",
        ),
        ("schedule = { weights = { 0 = 256 } }", "{ 0 = 256 }", "weight 256: 1 to 255"),
        ("schedule = { weights = { 9 = 1 } }", "9", "there is no queue 9"),
        ("schedule = { rate = \"20Gbps\" }", "\"20Gbps\"", "at most the line's 10Gbps"),
        ("schedule = { queue_rate = { 1 = \"0bps\" } }", "{ 1 = \"0bps\" }", "above 0"),
        ("balance = { method = \"spray\", seed = 1 }", "1", "`seed` means nothing to this method"),
        ("balance = { method = \"ecmp\", fields = [\"hue\"] }", "\"hue\"", "no field of a frame"),
        ("balance = { method = \"path-navigation\" }", "\"path-navigation\"", "needs `paths`"),
        ("lag = { up = { ports = [\"9\"] } }", "\"9\"", "the switch has no port `9`"),
        ("lag = { up = { ports = [] } }", "[]", "at least one"),
        ("lag = { up = { ports = [\"1\", \"1\"] } }", "[\"1\", \"1\"]", "in it twice"),
        ("lag = { up = { ports = [\"1\"] } }", "[\"1\"]", "not the ports of one aggregation"),
    ] {
        let text = TWO.replace("[switch.s1]", &format!("[switch.s1]\n{switch}"));
        let error = Topology::parse("test.toml", &text).expect_err(switch);
        let issue = error.issues.first().expect("an issue");
        assert_eq!(&text[issue.span.clone()], points_at, "{switch}: {}", issue.message);
        assert!(issue.message.contains(says), "{}", issue.message);
    }
}

/// Two switches with two links between them, aggregated or not.
fn pair(lags: [&str; 2]) -> String {
    let [one, two] = lags;
    format!(
        "{TWO}\n[switch.s2]\n{two}\n[host.h3]\n[[link]]\nends = [\"h3:eth0\", \"s2:3\"]\n\
         [[link]]\nends = [\"s1:3\", \"s2:1\"]\n[[link]]\nends = [\"s1:4\", \"s2:2\"]\n"
    )
    .replace("[switch.s1]", &format!("[switch.s1]\n{one}"))
}

#[test]
fn the_links_of_an_aggregation_are_one() {
    let lags =
        ["lag = { a = { ports = [\"3\", \"4\"] } }", "lag = { b = { ports = [\"1\", \"2\"] } }"];
    let floods = |topology: &Topology, switch: usize| -> Vec<bool> {
        topology.switches[switch].config.ports.iter().map(|port| port.flood).collect()
    };
    let apart = parse(&pair(["", ""]));
    assert_eq!(floods(&apart, 0), [true, true, true, false], "one link is outside the tree");
    let together = parse(&pair(lags));
    assert_eq!(floods(&together, 0), [true; 4]);
    assert_eq!(floods(&together, 1), [true; 3]);
    let group = &together.switches[0].config.groups[0];
    assert_eq!(group.name, "a");
    assert!(together.promises_order());
    // Static entries lead to the aggregation, not to one of its ports.
    let text = pair(
        lags.map(|lag| format!("forwarding = \"static\"\n{lag}")).each_ref().map(String::as_str),
    );
    let topology = parse(&text);
    let entries = &topology.switches[0].config.static_macs;
    let to_h3 = entries.iter().find(|entry| entry.mac == topology.hosts[2].config.mac);
    let place = crate::switch::config::group_port(0);
    assert_eq!(to_h3.map(|entry| entry.port), Some(place));
    // One side alone is no aggregation.
    let half = pair([lags[0], ""]);
    let error = Topology::parse("test.toml", &half).expect_err("half of it");
    assert!(error.issues[0].message.contains("not the ports of one aggregation"));
}

#[test]
fn equal_paths_of_different_speed_are_sprayed_by_weight_alone() {
    let spray = "[defaults.switch]\nforwarding = \"static\"\nbalance = { method = \"spray\" }\n";
    let text = LEAF_SPINE.replace("[switch.leaf1]", &format!("{spray}[switch.leaf1]"));
    let text = text.replace("switch = { forwarding = \"static\", buffer = \"4MB\" }", "");
    let topology = parse(&text);
    assert_eq!(topology.switches[0].config.groups.len(), 1, "one set of equal paths");
    assert!(!topology.promises_order());
    let uneven = text.replace(
        "ends = [\"leaf1:3\", \"spine1:1\"]",
        "ends = [\"leaf1:3\", \"spine1:1\"]\nrate = \"400Gbps\"",
    );
    assert_ne!(uneven, text);
    let error = Topology::parse("test.toml", &uneven).expect_err("no weights");
    let issue = &error.issues[0];
    assert_eq!(&uneven[issue.span.clone()], "{ method = \"spray\" }");
    assert!(issue.message.contains("run at 400Gbps and 100Gbps"), "{}", issue.message);
    let weighted = uneven.replace(
        "[switch.leaf1]",
        "[switch.leaf1]\nbalance = { method = \"spray\", weights = { 3 = 4, 4 = 1 } }",
    );
    let topology = parse(&weighted);
    assert_eq!(topology.switches[0].config.groups[0].group.members[0].weight, Some(4));
}

#[test]
fn a_port_whose_interface_could_not_be_made_is_refused() {
    for (ports, says) in [
        (["lo", "2"], "cannot name a port"),
        (["1234567890123", "2"], "cannot name a port"),
        (["swp2", "2"], "interfaces of its ports"),
    ] {
        let text = TWO.replace("s1:1", &format!("s1:{}", ports[0]));
        let text = text.replace("s1:2", &format!("s1:{}", ports[1]));
        let error = Topology::parse("test.toml", &text).expect_err(ports[0]);
        assert!(error.render(false, false).contains(says), "{}", error.render(false, false));
    }
    parse(&TWO.replace("s1:1", "s1:swp9").replace("s1:2", "s1:address"));
}

#[test]
fn the_seed_reaches_every_node() {
    let mut topology = parse(TWO);
    topology.set_seed(9);
    assert!(topology.switch_configs().iter().all(|config| config.seed == 9));
    assert!(topology.host_configs().iter().all(|(_, config)| config.seed == 9));
}

#[test]
fn leaf_spine_floods_on_a_tree_and_uses_both_spines() {
    let topology = parse(LEAF_SPINE);
    let flooded: Vec<(String, Vec<bool>)> = topology
        .switches
        .iter()
        .map(|s| (s.config.name.clone(), s.config.ports.iter().map(|p| p.flood).collect()))
        .collect();
    assert_eq!(
        flooded,
        [
            ("leaf1".to_owned(), vec![true, true, true, false]),
            ("leaf2".to_owned(), vec![true, true, true, false]),
            ("spine1".to_owned(), vec![true, true]),
            ("spine2".to_owned(), vec![false, false]),
        ],
        "spine2 has no host behind it, so nothing is flooded there"
    );
    let leaf1 = &topology.switches[0].config.static_macs;
    let ports: Vec<u16> = leaf1.iter().map(|entry| entry.port.0).collect();
    assert_eq!(ports, [0, 1, 2, 3], "h3 by spine1, h4 by spine2");
    assert!(topology.switches.iter().all(|s| s.config.static_macs.len() == 4));
    assert_eq!(topology.streams.len(), 12);
    assert_eq!(topology.hosts[0].config.streams.len(), 3);
    let frames: u64 = topology.streams.iter().map(|s| s.config.frames_max).sum();
    assert!(frames >= 100_000);
}

#[test]
fn testbeds_parse() {
    for text in [
        include_str!("../../../netns-testbed/two-hosts.toml"),
        include_str!("../../../netns-testbed/stream.toml"),
        LEAF_SPINE,
    ] {
        parse(text);
    }
    let kernel = parse(include_str!("../../../netns-testbed/two-hosts.toml"));
    assert_eq!(kernel.run.clock, Clock::Free, "kernel hosts keep their own time");
}

#[test]
fn ports_sort_by_number_and_tables_apply() {
    let topology = parse(
        r#"
name = "ports"
[defaults]
mtu = "9000B"
stream = { rate = "2.5Mpps", duration = "1ms" }
[switch.s1]
queue_limit = "1MB"
dscp_to_priority = { "46" = 6 }
[switch.s1.port.10]
vlan = { trunk = [20, 10, 10], native = 1 }
rate = "1Gbps"
queue_limit = ["10KB", "20KB", "30KB", "40KB", "50KB", "60KB", "70KB", "80KB"]
[host.h1]
[host.h2]
[[link]]
ends = ["h1:eth0", "s1:10"]
[[link]]
ends = ["s1:9", "h2:eth0"]
[[stream]]
from = "h1"
to = "h2"
ip = 6
vlan = 1
pcp = 3
start = "5us"
"#,
    );
    let config = &topology.switches[0].config;
    let names: Vec<&str> = config.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["9", "10"]);
    let ten = &config.ports[1];
    assert_eq!(ten.vlan, VlanMode::Trunk { allowed: vec![10, 20], native: Some(1) });
    assert_eq!((ten.rate, ten.mtu_bytes), (Rate::from_gbps(1), 9_000));
    assert_eq!(ten.queue_limit_bytes[7], 80_000);
    assert_eq!(config.ports[0].queue_limit_bytes, [1_000_000; 8]);
    assert_eq!(config.dscp_to_priority[46], 6);
    let stream = &topology.streams[0].config;
    assert_eq!(stream.rate, AnyRate::Frames(FrameRate::from_pps(2_500_000)));
    assert_eq!(stream.target.vlan, Some((1, 3)));
    assert!(stream.target.ip.is_ipv6());
    assert_eq!(stream.stop, Time::from_ns(1_005_000));
}

/// Each mistake, as an edit of the file of two hosts: what to replace (everything behind the file
/// when empty) and by what.
const MISTAKES: [(&str, &str, &str); 52] = [
    ("not TOML", "[switch.s1]", "[switch.s1"),
    ("missing name", "name = \"two\"", ""),
    ("unknown key", "[host.h1]", "[host.h1]\nknd = \"agent\""),
    ("unknown key far from any", "[host.h1]", "[host.h1]\nweight_kg = 3"),
    ("a key of a later release", "", "[[flow]]\nfrom = \"h1\""),
    ("bare number", "\"s1:1\"]", "\"s1:1\"]\nrate = 10"),
    ("wrong unit", "\"s1:1\"]", "\"s1:1\"]\ndelay = \"10KB\""),
    ("wrong kind of host", "[host.h1]", "[host.h1]\nkind = \"router\""),
    ("key twice", "[host.h1]", "[host.h1]\nmtu = 1500\nmtu = 1500"),
    ("lab name", "\"two\"", "\"../two\""),
    ("node name", "[host.h1]", "[host.h-1]\n[host.h1]"),
    ("overlapping names", "[host.h1]", "[host.s1]\n[host.h1]"),
    ("seed twice", "name = \"two\"", "name = \"two\"\nseed = 1\nrun.seed = 2"),
    ("one end", "[\"h1:eth0\", \"s1:1\"]", "[\"h1:eth0\"]"),
    ("not a port", "\"s1:1\"]", "\"s1\"]"),
    ("no such node", "\"s1:1\"]", "\"s3:1\"]"),
    ("no such port of a host", "\"h1:eth0\"", "\"h1:eth1\""),
    ("no such port of a switch", "[switch.s1]", "[switch.s1]\nports = 1"),
    ("port used twice", "\"s1:2\"", "\"s1:1\""),
    ("link to itself", "\"h1:eth0\", \"s1:1\"", "\"s1:3\", \"s1:1\""),
    ("node without links", "[host.h1]", "[host.h1]\n[host.h3]"),
    ("port table without link", "[switch.s1]", "[switch.s1.port.7]\nmtu = 1500"),
    ("rate of zero", "\"s1:1\"]", "\"s1:1\"]\nrate = \"0Gbps\""),
    ("loss above all", "\"s1:1\"]", "\"s1:1\"]\nloss = \"101%\""),
    ("MTU", "[host.h1]", "[host.h1]\nmtu = 20"),
    ("MTU for chunks", "[host.h1]", "[lab]\nchunk = \"2048B\"\n[host.h1]\nmtu = 40000"),
    ("address without prefix", "[host.h1]", "[host.h1]\nipv4 = \"10.0.0.1\""),
    (
        "addresses clash",
        "[host.h1]\n[host.h2]",
        "[host.h1]\nipv4 = \"10.0.0.1/24\"\n[host.h2]\nipv4 = \"10.0.0.1/24\"",
    ),
    ("group MAC", "[host.h1]", "[host.h1]\nmac = \"01:00:00:00:00:01\""),
    ("VLAN", "[switch.s1]", "[switch.s1.port.1]\nvlan = { access = 4095 }"),
    ("access and trunk", "[switch.s1]", "[switch.s1.port.1]\nvlan = { access = 1, trunk = [2] }"),
    ("queue limits", "[switch.s1]", "[switch.s1]\nqueue_limit = [\"1KB\", \"2KB\"]"),
    ("PCP map", "[switch.s1]", "[switch.s1]\npcp_to_priority = [0, 1, 2, 3, 4, 5, 6, 8]"),
    (
        "kernel host on the gated clock",
        "[host.h2]",
        "[host.h2]\nkind = \"kernel\"\n[run]\nclock = \"gated\"",
    ),
    ("gated without delay", "\"s1:1\"]", "\"s1:1\"]\ndelay = \"0us\""),
    ("a link that holds frames for good", "\"s1:1\"]", "\"s1:1\"]\njitter = \"3600s\""),
    ("I/O workers by the gated clock", "[switch.s1]", "[switch.s1]\nio_workers = 2"),
    (
        "more I/O workers than ports",
        "[switch.s1]",
        "[run]\nclock = \"free\"\n[switch.s1]\nio_workers = 3",
    ),
    (
        "cores of I/O workers",
        "[switch.s1]",
        "[run]\nclock = \"free\"\n[switch.s1]\nio_workers = 2\nio_cores = [0]",
    ),
    ("cores of no I/O workers", "[switch.s1]", "[switch.s1]\nio_cores = [0]"),
    ("dilation of the gated clock", "", "[run]\ndilation = 4"),
    ("capture of nothing", "", "[run]\ncapture = \"s1:9\""),
    ("stream without rate", "", "[[stream]]\nfrom = \"h1\"\nto = \"h2\"\nframes = 1"),
    ("endless stream", "", "[[stream]]\nfrom = \"h1\"\nto = \"h2\"\nrate = \"1Gbps\""),
    ("stream to itself", "", "[[stream]]\nfrom = \"h1\"\nto = \"h1\"\nrate = \"1G\"\nframes = 1"),
    (
        "frame too long",
        "",
        "[[stream]]\nfrom = \"h1\"\nto = \"h2\"\nrate = \"1G\"\nframes = 1\nframe_bytes = 1515",
    ),
    (
        "stream of a kernel host",
        "[host.h1]",
        "[host.h1]\nkind = \"kernel\"\n[[stream]]\nfrom = \"h1\"\nto = \"h2\"\nrate = \"1G\"\nframes = 1",
    ),
    ("fault without link", "", "[[fault]]\nat = \"1ms\"\nlink = \"s1:9\"\ndown = true"),
    ("fault that does nothing", "", "[[fault]]\nat = \"1ms\"\nlink = \"s1:1\""),
    ("later fault", "", "[[fault]]\nat = \"1ms\"\nlink = \"s1:1\"\nslow = \"0.5x\""),
    ("aggregate", "", "[[expect]]\nvalue = \"flows[].fct_ns | median\"\nis = \"== 0\""),
    ("comparison", "", "[[expect]]\nvalue = \"switches.s1.drops.total\"\nis = \"=< 0\""),
];

fn mistaken(replace: &str, by: &str) -> String {
    if replace.is_empty() {
        return format!("{TWO}{by}\n");
    }
    assert!(TWO.contains(replace), "{replace}");
    TWO.replacen(replace, by, 1)
}

#[test]
fn every_mistake_is_pointed_at() {
    let mut shown = String::new();
    for (what, replace, by) in MISTAKES {
        let error = Topology::parse("lab.toml", &mistaken(replace, by))
            .err()
            .unwrap_or_else(|| panic!("{what}: no error"));
        let rendered = error.render(false, false);
        assert!(rendered.contains("lab.toml:"), "{what}: no place in\n{rendered}");
        assert!(rendered.contains("`-- "), "{what}: no caret in\n{rendered}");
        writeln!(shown, "## {what}\n{rendered}\n").expect("a string takes all");
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once() {
    let text = mistaken("[host.h1]", "[host.h1]\nmtu = 20\n[host.h3]");
    let error = Topology::parse("lab.toml", &text).expect_err("two mistakes");
    assert_eq!(error.issues.len(), 2);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*") {
        let _ = Topology::parse("x", &text).map_err(|error| error.render(true, true));
    }

    #[test]
    fn no_damage_makes_the_parser_panic(
        at in 0..LEAF_SPINE.len(),
        cut in 0_usize..40,
        insert in "([a-z]{1,5} = |\\[\\[?(link|stream|host\\.x|switch\\.s1\\.port\\.é)\\]?\\]|\"|[0-9]{1,19}|-1|\\{|[a-zé0-9%.\"\n]{0,9})",
    ) {
        // The file is ASCII, so every offset is a boundary.
        let end = (at + cut).min(LEAF_SPINE.len());
        let text = format!("{}{insert}{}", &LEAF_SPINE[..at], &LEAF_SPINE[end..]);
        let _ = Topology::parse("x", &text).map_err(|error| error.render(false, false));
    }
}

/// A priority's shares come from the nearest table that says something, and from defaults.
#[test]
fn shares_are_resolved_from_the_nearest_table() {
    let switch = r#"
[defaults.switch]
class = { 3 = { min = "1KB", xon = "2KB" }, 0 = { limit = "300KB" } }
queue_limit = "1MB"
[switch.s1]
lossless = [3]
class = { 3 = { xoff = "500KB" } }
[switch.s1.port.2]
lossless = [3, 4]
class = { 3 = { min = "5KB", headroom = "60KB", xon_offset = "1KB" } }
[switch.s1.port.1.queue.0]
limit = "2MB"
dt_alpha = "1/4"
"#;
    let text = TWO.replace("[switch.s1]", switch);
    let config = &parse(&text).switches[0].config;
    let [one, two] = [0, 1].map(|port: usize| &config.ports[port]);
    let lossless = |port: &PortConfig, priority: usize| {
        port.shares.groups[priority].lossless.expect("lossless")
    };
    assert_eq!((one.shares.lossless_mask(), two.shares.lossless_mask()), (1 << 3, 3 << 3));
    assert_eq!(one.shares.groups[3].threshold.static_bytes, Some(500_000));
    assert_eq!(one.shares.groups[3].threshold.dt_alpha, None, "xoff stands alone");
    assert_eq!(two.shares.groups[4].threshold.dt_alpha, Some(Alpha::ONE), "where nothing is said");
    assert_eq!((one.shares.groups[3].min_bytes, two.shares.groups[3].min_bytes), (1_000, 5_000));
    assert_eq!((lossless(one, 3).xon_bytes, lossless(two, 3).xon_bytes), (2_000, 2_000));
    assert_eq!(lossless(two, 3).headroom_bytes, 60_000);
    assert_eq!(lossless(two, 3).xon_offset_bytes, 1_000);
    assert_eq!(lossless(one, 3).xon_offset_bytes, 2 * 1_518);
    assert_eq!(one.shares.groups[0].threshold.static_bytes, Some(300_000));
    assert_eq!(one.queue_limit_bytes[0], 2_000_000);
    assert_eq!(two.queue_limit_bytes[..3], [1_000_000; 3]);
    assert_eq!(
        two.queue_limit_bytes[3..5],
        [u64::MAX; 2],
        "no limit where a lossless priority goes"
    );
    assert_eq!(one.shares.queues[0].threshold.dt_alpha, Alpha::from_exponent(-2));
    assert!(one.is_last_hop);
}

/// The headroom follows the link and its far end.
#[test]
fn a_computed_headroom_knows_its_link() {
    let bytes = |link: &str, more: &str| {
        let text = TWO.replace("[switch.s1]", "[switch.s1]\nlossless = [3]");
        let text = text.replace("\"s1:1\"]", &format!("\"s1:1\"]\n{link}"));
        let topology = parse(&format!("{text}{more}"));
        let switch = &topology.switches[0];
        let explained = &switch.headrooms[0];
        assert_eq!((explained.port, explained.priorities), (0, 1 << 3));
        let lossless = switch.config.ports[0].shares.groups[3].lossless.expect("lossless");
        assert_eq!(lossless.headroom_bytes, explained.headroom.bytes);
        assert!(explain_headrooms(switch).contains("headroom of s1, ports 1"));
        lossless.headroom_bytes
    };
    let near = bytes("delay = \"100ns\"", "");
    assert!(bytes("delay = \"1us\"", "") > near);
    assert!(bytes("delay = \"100ns\"\njitter = \"900ns\"", "") > near);
    assert!(bytes("delay = \"100ns\"\nrate = \"100Gbps\"", "") > near);
    assert!(bytes("delay = \"100ns\"", "[run]\nclock = \"free\"\n[lab]\nring = 64") > near);
}

#[test]
fn the_dcqcn_profile_is_the_papers_rule() {
    let text = TWO.replace("[switch.s1]", "[switch.s1]\nbuffer_profile = \"dcqcn\"");
    let topology = parse(&text);
    let port = &topology.switches[0].config.ports[0];
    assert_eq!(Some(&port.shares), crate::switch::memory::dcqcn::DCQCN_PAPER.shares().as_ref());
    assert!(topology.switches[0].headrooms.is_empty(), "its headroom is the paper's, not computed");
}

#[test]
fn a_headroom_that_does_not_fit_is_refused_with_its_arithmetic() {
    let text = TWO
        .replace("[switch.s1]", "[switch.s1]\nlossless = [3]\nbuffer = \"3MB\"")
        .replace("[[link]]", "[[link]]\nrate = \"400Gbps\"\ndelay = \"10us\"");
    let error = Topology::parse("test.toml", &text).expect_err("too large");
    let issue = &error.issues[0];
    let help = issue.help.as_deref().expect("the lines");
    assert!(help.contains("in frames of 60 bytes (1 cell for 84 of wire)"), "{help}");
    assert!(help.contains("the link, both ways"), "{help}");
}
