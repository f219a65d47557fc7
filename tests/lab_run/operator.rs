//! A running lab under the hands of an operator: what it shows, and what can be set.

use std::os::unix::net::UnixStream;

use serde_json::Value;

use super::ends::ENDLESS;
use crate::lab::{Lab, stderr, stdout, tailwater};
use crate::namespaces;

const H2_CAME: &str = "/hosts/h2/rx_frames";

/// What `set` says when it refuses, with 2.
fn refused(lab: &Lab, what: &str) -> String {
    let output = tailwater(&["set", &lab.name, what]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{what}: {}", stderr(&output));
    assert_eq!(stdout(&output), "");
    stderr(&output)
}

fn shown(lab: &Lab, pointer: &str) -> Value {
    let shown = lab.show().expect("the lab answers");
    shown.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {shown:#}")).clone()
}

#[test]
fn a_running_lab_is_shown_and_changed_by_either_clock() {
    if !namespaces::available() {
        return;
    }
    for clock in ["gated", "free"] {
        let lab = Lab::new(ENDLESS);
        let running = lab.start("run", &["--clock", clock]);
        lab.wait_for_more(H2_CAME, 50);
        let all = lab.show().expect("the lab answers");
        let link = &all["links"]["h2:eth0-s1:2"];
        let of_link = |key: &str| link[key].as_u64().expect(key);
        let went = of_link("delivered") + of_link("in_flight") + of_link("kernel_dropped");
        assert_eq!(of_link("sent"), went, "{link}");
        assert!(of_link("delivered") > 50 && link["down"] == false && link["delay"] == "10us");
        assert_eq!((&all["hosts"]["h1"]["kind"], &all["clock"]), (&"agent".into(), &clock.into()));
        assert_eq!(all["lateness_ns"]["count"].as_u64() > Some(0), clock == "free", "{all:#}");

        // A link, whose path and unit are those that `show` has.
        lab.set("links.h2:eth0-s1:2.loss=100%");
        assert_eq!(shown(&lab, "/links/h2:eth0-s1:2/loss"), "100%");
        lab.wait_for_more("/links/h2:eth0-s1:2/lost", 100);
        lab.set("links.s1:2.loss=0%");
        lab.wait_for_more(H2_CAME, 50);

        // A port of a switch goes down with its link, and both ends know.
        lab.set("switches.s1.ports.2.down=true");
        assert_eq!(shown(&lab, "/switches/s1/ports/2/down"), true);
        assert_eq!(shown(&lab, "/links/h2:eth0-s1:2/down"), true);
        lab.wait_for_more("/switches/s1/drops/total", 20);
        lab.wait_for_more("/hosts/h2/drops/link_down", 20);
        lab.set("switches.s1.ports.2.down=false");
        lab.wait_for_more(H2_CAME, 50);

        // The switch itself.
        lab.set("switches.s1.ports.2.queue_limit.3=64KB");
        assert_eq!(shown(&lab, "/switches/s1/ports/2/queue_limit/3"), "64KB");
        assert_eq!(shown(&lab, "/switches/s1/ports/2/queue_limit/2"), "none");
        lab.set("switches.s1.mac_ageing=7s");
        assert_eq!(shown(&lab, "/switches/s1/mac_ageing"), "7s");
        let flushed = lab.counter("/switches/s1/mac_table/flushed");
        lab.set("switches.s1.mac_table=flush");
        assert!(lab.counter("/switches/s1/mac_table/flushed") > flushed);
        lab.wait_for_more(H2_CAME, 50);

        assert!(refused(&lab, "links.h2:eth0-s1:2.colour=1").contains("links.LINK.loss"));
        assert!(refused(&lab, "links.h9:eth0.loss=1%").contains("h2:eth0-s1:2"));
        assert!(refused(&lab, "links.s1:1.delay=5").contains("needs a unit"));
        assert!(refused(&lab, "switches.s1.ports.1.queue_limit=100B").contains("MTU 1518"));
        if clock == "gated" {
            assert!(refused(&lab, "links.s1:1.delay=9us").contains("10us or more"));
        }
        lab.set("links.s1:1.delay=11us");
        lab.wait_for_more(H2_CAME, 50);
        let output = tailwater(&["set", &lab.name, "links.s1:1.delay=12us", "--json"]).output();
        let set: Value = serde_json::from_str(&stdout(&output.expect("it runs"))).expect("JSON");
        assert_eq!(set[0]["value"], "12us");
        assert!(set[0]["node_time_ns"].as_u64() > Some(0), "{set}");
        running.interrupt();
        lab.assert_sound("run");
    }
}

#[test]
fn a_lab_that_is_up_ends_when_it_is_told_to_and_says_so_as_it_is_asked() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(ENDLESS);
    let output = lab.run(&["lab", "up"], "timed", &["--duration", "20ms", "--json"], 0);
    let report: Value = serde_json::from_str(&stdout(&output)).expect("the report alone");
    assert!(stderr(&output).contains("ready\n"), "{}", stderr(&output));
    assert_eq!(report["duration_ns"], 20_000_000);
    lab.assert_gone();
    let output = lab.run(&["lab", "up"], "detached", &["--detach", "--json"], 0);
    let status: Value = serde_json::from_str(&stdout(&output)).expect("one document");
    assert_eq!((&status["name"], &status["clock"]), (&lab.name.as_str().into(), &"free".into()));
    assert!(lab.down().status.success());
    lab.assert_gone();
}

#[test]
fn two_hundred_silent_clients_keep_no_operator_waiting() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::new(ENDLESS);
    let running = lab.start("run", &[]);
    let path = format!("/run/tailwater/{}.sock", lab.name);
    let silent: Vec<UnixStream> =
        (0..200).map(|_| UnixStream::connect(&path).expect("connects")).collect();
    for _ in 0..3 {
        let output = tailwater(&["lab", "status", &lab.name]).output().expect("it runs");
        assert!(stdout(&output).contains("node_time_ns: "), "{}", stdout(&output));
    }
    running.interrupt();
    drop(silent);
}
