//! What can be changed on a running lab, by path: `tailwater set NAME PATH=VALUE`.
//!
//! The three tables below are the one list of it: what is in them is read, refused, and shown to who
//! asks for a path that is not. A parameter of the switch is a line in one of them, and a
//! [`SwitchSetting`] that it makes.

use crate::cli::Failure;
use crate::lab::topology::{Ppb, Topology};
use crate::node::PortId;
use crate::sim::{DELAY_MAX, LinkChange};
use crate::switch::SwitchSetting;
use crate::switch::config::QUEUES;
use crate::time::Duration;
use crate::units::Bytes;

/// A change to a running lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// To a link, in both directions.
    Link {
        /// An index into [`Topology::links`].
        link: usize,
        /// What changes.
        change: LinkChange,
    },
    /// To what hangs on a port of a switch: it goes down or up with its link.
    Port {
        /// An index into [`Topology::switches`].
        switch: usize,
        /// The port.
        port: PortId,
        /// Whether it is up from now on.
        up: bool,
    },
    /// To a switch.
    Switch {
        /// An index into [`Topology::switches`].
        switch: usize,
        /// What changes.
        setting: SwitchSetting,
    },
}

/// One line of a table: the last part of the path, what it takes, and what a value means.
struct Line<R> {
    key: &'static str,
    takes: &'static str,
    read: R,
}

type OfLink = fn(&str) -> Result<LinkChange, String>;
type OfSwitch = fn(&str) -> Result<SwitchSetting, String>;

/// `links.LINK.KEY`; a link is named as in reports, or by one of its ends.
const LINK: &[Line<OfLink>] = &[
    Line {
        key: "down",
        takes: "true or false",
        read: |text| Ok(if boolean(text)? { LinkChange::Down } else { LinkChange::Up }),
    },
    Line {
        key: "loss",
        takes: "a share such as 1%",
        read: |text| Ok(LinkChange::LossPpb(value::<Ppb>(text)?.0.into())),
    },
    Line {
        key: "corrupt",
        takes: "a share such as 20ppm",
        read: |text| Ok(LinkChange::CorruptPpb(value::<Ppb>(text)?.0.into())),
    },
    Line {
        key: "delay",
        takes: "a time such as 5us",
        read: |text| Ok(LinkChange::Delay(held(text)?)),
    },
    Line {
        key: "jitter",
        takes: "a time such as 100ns",
        read: |text| Ok(LinkChange::Jitter(held(text)?)),
    },
    Line {
        key: "reorder",
        takes: "a share such as 1%",
        read: |text| Ok(LinkChange::ReorderPpb(value::<Ppb>(text)?.0.into())),
    },
    Line {
        key: "reorder_by",
        takes: "a time such as 5us",
        read: |text| Ok(LinkChange::ReorderBy(held(text)?)),
    },
];

/// `switches.SWITCH.KEY`.
const SWITCH: &[Line<OfSwitch>] = &[
    Line {
        key: "mac_ageing",
        takes: "a time such as 300s",
        read: |text| Ok(SwitchSetting::MacAgeing(value::<Duration>(text)?)),
    },
    Line {
        key: "mac_table",
        takes: "flush",
        read: |text| flush(text).map(|()| SwitchSetting::ForgetStations(None)),
    },
];

/// What a line of the ports' table makes of a port, perhaps one of its queues, and a value.
enum OfPort {
    Up(fn(&str) -> Result<bool, String>),
    Whole(fn(PortId, &str) -> Result<SwitchSetting, String>),
    /// The path may end in the number of a queue or priority; without it, all are meant.
    ByQueue(fn(PortId, Option<u8>, &str) -> Result<SwitchSetting, String>),
}

/// `switches.SWITCH.ports.PORT.KEY`.
const PORT: &[Line<OfPort>] = &[
    Line { key: "down", takes: "true or false", read: OfPort::Up(|text| Ok(!boolean(text)?)) },
    Line {
        key: "mac_table",
        takes: "flush",
        read: OfPort::Whole(|port, text| {
            flush(text).map(|()| SwitchSetting::ForgetStations(Some(port)))
        }),
    },
    Line {
        key: "watchdog",
        takes: "rearm",
        read: OfPort::ByQueue(|port, priority, text| match text {
            "rearm" => Ok(SwitchSetting::RearmWatchdog { port, priority }),
            _ => Err(format!("`{text}` is not something to do with it")),
        }),
    },
    Line {
        key: "queue_limit",
        takes: "a size such as 64KB",
        read: OfPort::ByQueue(|port, queue, text| {
            let Bytes(limit_bytes) = value(text)?;
            Ok(SwitchSetting::QueueLimit { port, queue, limit_bytes })
        }),
    },
];

impl Setting {
    /// What `path` and `value` mean in a lab.
    ///
    /// # Errors
    /// [`Failure::Usage`]: a path that cannot be set, with those that can; a name that the lab does
    /// not have, with those that it has; a value of another kind.
    pub fn read(topology: &Topology, path: &str, value: &str) -> Result<Self, Failure> {
        if let Some(rest) = path.strip_prefix("links.")
            && let Some((name, key)) = rest.rsplit_once('.')
        {
            let line = find(LINK, path, key)?;
            let names = topology.links.iter().map(|link| link.name.as_str());
            let link = topology.link(name).ok_or_else(|| no_such("link", name, names))?;
            let change = (line.read)(value).map_err(|why| wrong(path, &why, line.takes))?;
            return Ok(Self::Link { link, change });
        }
        if let Some(rest) = path.strip_prefix("switches.")
            && let Some((name, rest)) = rest.split_once('.')
        {
            let names = topology.switches.iter().map(|switch| switch.config.name.as_str());
            let switch = names
                .clone()
                .position(|known| known == name)
                .ok_or_else(|| no_such("switch", name, names))?;
            if let Some(rest) = rest.strip_prefix("ports.")
                && let Some((port, key)) = rest.split_once('.')
            {
                return Self::read_port(topology, switch, port, key, (path, value));
            }
            let line = find(SWITCH, path, rest)?;
            let setting = (line.read)(value).map_err(|why| wrong(path, &why, line.takes))?;
            return Ok(Self::Switch { switch, setting });
        }
        Err(unknown(path))
    }

    fn read_port(
        topology: &Topology,
        switch: usize,
        name: &str,
        key: &str,
        (path, value): (&str, &str),
    ) -> Result<Self, Failure> {
        let (key, queue) = key.split_once('.').map_or((key, None), |(key, n)| (key, Some(n)));
        let line = find(PORT, path, key)?;
        let ports = topology.switches[switch].config.ports.iter().map(|port| port.name.as_str());
        let found = (0_u16..).zip(ports.clone()).find(|(_, known)| *known == name);
        let (port, _) = found.ok_or_else(|| no_such("port", name, ports))?;
        let port = PortId(port);
        let setting = match (&line.read, queue) {
            (OfPort::Up(read), None) => {
                let up = read(value).map_err(|why| wrong(path, &why, line.takes))?;
                return Ok(Self::Port { switch, port, up });
            }
            (OfPort::Whole(read), None) => read(port, value),
            (OfPort::ByQueue(read), None) => read(port, None, value),
            (OfPort::ByQueue(read), Some(queue)) => {
                let number = queue.parse().ok().filter(|queue| usize::from(*queue) < QUEUES);
                let Some(number) = number else {
                    let why = format!("{path}: there is no queue `{queue}`: 0 to {}", QUEUES - 1);
                    return Err(Failure::Usage(why));
                };
                read(port, Some(number), value)
            }
            (OfPort::Up(_) | OfPort::Whole(_), Some(_)) => return Err(unknown(path)),
        };
        let setting = setting.map_err(|why| wrong(path, &why, line.takes))?;
        Ok(Self::Switch { switch, setting })
    }
}

fn find<'a, R>(table: &'a [Line<R>], path: &str, key: &str) -> Result<&'a Line<R>, Failure> {
    table.iter().find(|line| line.key == key).ok_or_else(|| unknown(path))
}

/// Every path that can be set, with what it takes, a line each.
pub fn settable() -> String {
    let of_links = LINK.iter().map(|line| (format!("links.LINK.{}", line.key), line.takes));
    let of_switches =
        SWITCH.iter().map(|line| (format!("switches.SWITCH.{}", line.key), line.takes));
    let of_ports = PORT.iter().map(|line| {
        let queue = if matches!(line.read, OfPort::ByQueue(_)) { "[.QUEUE]" } else { "" };
        (format!("switches.SWITCH.ports.PORT.{}{queue}", line.key), line.takes)
    });
    let lines: Vec<_> = of_links.chain(of_switches).chain(of_ports).collect();
    let wide = lines.iter().map(|(path, _)| path.len()).max().unwrap_or(0);
    let lines = lines.iter().map(|(path, takes)| format!("  {path:<wide$}  {takes}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn unknown(path: &str) -> Failure {
    Failure::Usage(format!("`{path}` cannot be set; what can:\n{}", settable()))
}

fn no_such<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let known: Vec<&str> = known.collect();
    Failure::Usage(format!("there is no {kind} `{name}`; there is {}", known.join(", ")))
}

fn wrong(path: &str, why: &str, takes: &str) -> Failure {
    Failure::Usage(format!("{path}: {why}; it takes {takes}"))
}

fn boolean(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("`{text}` is neither true nor false"))
}

fn flush(text: &str) -> Result<(), String> {
    if text == "flush" { Ok(()) } else { Err(format!("`{text}` is not something to do with it")) }
}

fn value<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// How long a link holds a frame.
fn held(text: &str) -> Result<Duration, String> {
    let span: Duration = value(text)?;
    if span > DELAY_MAX {
        return Err(format!("a link holds a frame for at most {DELAY_MAX}"));
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAB: &str = r#"
name = "lab"
[switch.s1]
[host.h1]
[host.h2]
[[link]]
ends = ["h1:eth0", "s1:1"]
[[link]]
ends = ["h2:eth0", "s1:2"]
"#;

    fn read(path: &str, value: &str) -> Result<Setting, String> {
        let topology = Topology::parse("lab.toml", LAB).expect("a topology");
        Setting::read(&topology, path, value).map_err(|failure| {
            assert!(matches!(failure, Failure::Usage(_)), "{failure}");
            failure.to_string()
        })
    }

    #[test]
    fn every_path_reads_as_what_it_says() {
        let of_switch = |setting| Ok(Setting::Switch { switch: 0, setting });
        let of_link = |change| Ok(Setting::Link { link: 1, change });
        let limit = |queue, limit_bytes| {
            of_switch(SwitchSetting::QueueLimit { port: PortId(1), queue, limit_bytes })
        };
        for (path, value, wants) in [
            ("links.h2:eth0-s1:2.down", "true", of_link(LinkChange::Down)),
            ("links.s1:2.down", "false", of_link(LinkChange::Up)),
            ("links.h2:eth0.loss", "1%", of_link(LinkChange::LossPpb(10_000_000))),
            ("links.s1:2.corrupt", "1ppm", of_link(LinkChange::CorruptPpb(1_000))),
            ("links.s1:2.delay", "5us", of_link(LinkChange::Delay(Duration::from_us(5)))),
            ("links.s1:2.jitter", "1ns", of_link(LinkChange::Jitter(Duration::from_ns(1)))),
            ("links.s1:2.reorder", "1ppm", of_link(LinkChange::ReorderPpb(1_000))),
            ("links.s1:2.reorder_by", "2us", of_link(LinkChange::ReorderBy(Duration::from_us(2)))),
            (
                "switches.s1.mac_ageing",
                "10s",
                of_switch(SwitchSetting::MacAgeing(Duration::from_secs(10))),
            ),
            ("switches.s1.mac_table", "flush", of_switch(SwitchSetting::ForgetStations(None))),
            (
                "switches.s1.ports.2.mac_table",
                "flush",
                of_switch(SwitchSetting::ForgetStations(Some(PortId(1)))),
            ),
            (
                "switches.s1.ports.2.down",
                "true",
                Ok(Setting::Port { switch: 0, port: PortId(1), up: false }),
            ),
            ("switches.s1.ports.2.queue_limit", "64KB", limit(None, 64_000)),
            ("switches.s1.ports.2.queue_limit.3", "9000B", limit(Some(3), 9_000)),
        ] {
            assert_eq!(read(path, value), wants, "{path}={value}");
        }
    }

    #[test]
    fn what_cannot_be_set_is_refused_with_what_can() {
        for path in [
            "",
            "links",
            "links.h2:eth0",
            "links.h2:eth0.colour",
            "switches.s1",
            "switches.s1.ports.1",
            "switches.s1.ports.1.down.3",
            "switches.s1.colour",
            "switches.s1.ports.1.queue_limit.3.4.colour.x",
            "hosts.h1.down",
        ] {
            let why = read(path, "1").expect_err(path);
            let all = LINK.len() + SWITCH.len() + PORT.len();
            if why.contains("cannot be set") {
                assert_eq!(why.lines().count(), 1 + all, "{why}");
            } else {
                assert!(why.contains("no queue `3.4.colour.x`"), "{path}: {why}");
            }
        }
        for (path, value, wants) in [
            ("links.h9:eth0.loss", "1%", "no link `h9:eth0`; there is h1:eth0-s1:1, h2:eth0-s1:2"),
            ("switches.s9.mac_ageing", "1s", "no switch `s9`; there is s1"),
            ("switches.s1.ports.9.down", "true", "no port `9`; there is 1, 2"),
            ("switches.s1.ports.1.queue_limit.8", "1MB", "no queue `8`: 0 to 7"),
            ("links.s1:1.loss", "1", "it takes a share such as 1%"),
            ("links.s1:1.delay", "5", "needs a unit"),
            ("links.s1:1.delay", "1001ms", "at most 1s"),
            ("links.s1:1.jitter", "3600s", "at most 1s"),
            ("links.s1:1.reorder_by", "2s", "at most 1s"),
            ("links.s1:1.down", "yes", "`yes` is neither true nor false"),
            ("switches.s1.mac_table", "empty", "it takes flush"),
            ("switches.s1.ports.1.queue_limit", "9000", "needs a unit"),
        ] {
            let why = read(path, value).expect_err(path);
            assert!(why.contains(wants), "{path}={value}: {why}");
        }
    }
}
