//! `every-key.toml` uses every key that there is.

use std::collections::BTreeSet;

use toml::Value;

use super::{Topology, file};

const EVERY_KEY: &str = include_str!("../../../netns-testbed/every-key.toml");

/// Each kind of table: the header that opens one, and where such tables are in a file (`*` stands for
/// every member of a table or element of an array).
const TABLES: [(&str, &str); 40] = [
    ("", ""),
    ("[defaults]", "defaults"),
    ("[defaults.link]", "defaults.link"),
    ("[defaults.host]", "defaults.host"),
    ("[defaults.stream]", "defaults.stream"),
    ("[defaults.switch]", "defaults.switch"),
    ("[switch.x]", "switch.*"),
    ("[switch.x.class.y]", "switch.*.class.*"),
    ("[switch.x.queue.y]", "switch.*.queue.*"),
    ("[switch.x.trim]", "switch.*.trim"),
    ("[[switch.x.neighbour]]", "switch.*.neighbour.*"),
    ("[[switch.x.route]]", "switch.*.route.*"),
    ("[switch.x.srv6]", "switch.*.srv6"),
    ("[[switch.x.srv6.usid]]", "switch.*.srv6.usid.*"),
    ("[[switch.x.srv6.encap]]", "switch.*.srv6.encap.*"),
    ("[switch.x.vxlan]", "switch.*.vxlan"),
    ("[[switch.x.vxlan.vni]]", "switch.*.vxlan.vni.*"),
    ("[[switch.x.vxlan.remote]]", "switch.*.vxlan.remote.*"),
    ("[switch.x.ecn]", "switch.*.ecn"),
    ("[switch.x.ecn.yellow]", "switch.*.ecn.yellow"),
    ("[switch.x.ecn.red]", "switch.*.ecn.red"),
    ("[switch.x.ecn.queue.y]", "switch.*.ecn.queue.*"),
    ("[switch.x.schedule]", "switch.*.schedule"),
    ("[switch.x.lag.y]", "switch.*.lag.*"),
    ("[switch.x.balance]", "switch.*.lag.*.balance"),
    ("[[switch.x.balance.paths]]", "switch.*.lag.*.balance.paths.*"),
    ("[switch.x.watchdog]", "switch.*.watchdog"),
    ("[switch.x.prevention]", "switch.*.prevention"),
    ("[[switch.x.prevention.chain]]", "switch.*.prevention.chain.*"),
    ("[switch.x.port.y]", "switch.*.port.*"),
    ("[switch.x.port.y.vlan]", "switch.*.port.*.vlan"),
    ("[host.x]", "host.*"),
    ("[[link]]", "link.*"),
    ("[[external]]", "external.*"),
    ("[[stream]]", "stream.*"),
    ("[[storm]]", "storm.*"),
    ("[[fault]]", "fault.*"),
    ("[[expect]]", "expect.*"),
    ("[run]", "run"),
    ("[lab]", "lab"),
];

/// The keys of a kind of table, as serde names them when it meets one that it does not know.
fn known(header: &str) -> BTreeSet<String> {
    let text = format!("name = \"x\"\n{header}\nno_such_key = 1\n");
    let error = toml::from_str::<file::File>(&text).expect_err("an unknown key");
    let message = error.message().to_owned();
    assert!(message.starts_with("unknown field `no_such_key`"), "{header}: {message}");
    message.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}

fn used<'a>(value: &'a Value, path: &[&str], keys: &mut BTreeSet<&'a str>) {
    match (path.split_first(), value) {
        (None, Value::Table(table)) => keys.extend(table.keys().map(String::as_str)),
        (Some((&"*", rest)), Value::Table(table)) => {
            table.values().for_each(|inner| used(inner, rest, keys));
        }
        (Some((&"*", rest)), Value::Array(array)) => {
            array.iter().for_each(|inner| used(inner, rest, keys));
        }
        (Some((step, rest)), Value::Table(table)) => {
            if let Some(inner) = table.get(*step) {
                used(inner, rest, keys);
            }
        }
        _ => {}
    }
}

#[test]
fn the_example_uses_every_key_and_holds() {
    let example: Value = toml::from_str(EVERY_KEY).expect("TOML");
    // The same key again, or one that a default cannot have.
    let elsewhere = [
        ("run", "seed"),
        ("defaults.switch", "ports"),
        ("defaults.switch", "port"),
        ("defaults.switch", "core"),
        ("defaults.switch", "io_workers"),
        ("defaults.switch", "io_cores"),
        ("defaults.switch", "pcp_to_priority"),
        ("defaults.switch", "dscp_to_priority"),
        ("defaults.switch", "priority_to_queue"),
        ("defaults.switch", "buffer_profile"),
        ("defaults.switch", "lossless"),
        ("defaults.switch", "peer_response"),
        ("defaults.switch", "trim"),
        ("defaults.switch", "router_mac"),
        ("defaults.switch", "icmp_errors_per_second"),
        ("defaults.switch", "icmp_errors_burst"),
        ("defaults.switch", "neighbour"),
        ("defaults.switch", "route"),
        ("defaults.switch", "srv6"),
        ("defaults.switch", "vxlan"),
        ("defaults.switch", "obeys_pause"),
        ("defaults.switch", "pfc_quanta"),
        ("defaults.switch", "watchdog"),
        ("defaults.switch", "prevention"),
        ("defaults.switch", "stations"),
        // The other mode's.
        ("switch.*.watchdog", "restoration"),
        ("defaults.switch", "class"),
        ("defaults.switch", "queue"),
        ("defaults.switch", "ecn"),
        ("defaults.switch", "schedule"),
        ("defaults.switch", "balance"),
        ("defaults.switch", "lag"),
    ];
    for (header, at) in TABLES {
        let path: Vec<&str> = at.split('.').filter(|step| !step.is_empty()).collect();
        let mut keys = BTreeSet::new();
        used(&example, &path, &mut keys);
        for key in known(header) {
            let shown = keys.contains(key.as_str()) || elsewhere.contains(&(at, key.as_str()));
            assert!(shown, "every-key.toml lacks `{key}` in {header}");
        }
    }
    let topology = Topology::parse("every-key.toml", EVERY_KEY);
    topology.unwrap_or_else(|error| panic!("{}", error.render(false, false)));
}
