//! How an external interface is opened: which of its frames come, by which way, from which queues.

use super::error::Issue;
use super::file::{ExternalTable, XdpName, ZeroCopyName};
use super::resolve::Resolver;
use super::value::{OneOrMany, S};
use super::{Attachment, External, NodeId};
use crate::node::PortId;
use crate::xdp::{Attach, Match, Steering, ZeroCopy};

impl Resolver<'_> {
    /// An external port, with everything that the file says of its interface.
    pub(super) fn external(&mut self, table: &ExternalTable, switch: usize) -> External {
        let interface = &table.interface;
        if interface.get_ref().is_empty() || interface.get_ref().len() > 15 {
            self.issue(Issue::new(interface.span(), "an interface's name has 1 to 15 characters"));
        }
        External {
            switch,
            port: PortId(0),
            interface: interface.get_ref().clone(),
            netns: table.netns.as_ref().map(|netns| netns.get_ref().clone()),
            steering: table.steering.as_ref().map_or(Steering::All, |text| self.steering(text)),
            attach: match table.xdp {
                None | Some(XdpName::Auto) => Attach::Auto,
                Some(XdpName::Native) => Attach::Native,
                Some(XdpName::Generic) => Attach::Generic,
            },
            zero_copy: match table.zero_copy {
                None | Some(ZeroCopyName::Auto) => ZeroCopy::Auto,
                Some(ZeroCopyName::Require) => ZeroCopy::Require,
                Some(ZeroCopyName::Off) => ZeroCopy::Off,
            },
            queues: table.queues.as_ref().map_or_else(Vec::new, |queues| self.queues(queues)),
        }
    }

    fn steering(&mut self, written: &S<OneOrMany<String>>) -> Steering {
        let texts = &written.get_ref().0;
        if texts.len() == 1 && texts[0] == "all" {
            return Steering::All;
        }
        let mut matches: Vec<Match> = Vec::new();
        for text in texts {
            match text.parse() {
                Ok(one) => matches.push(one),
                Err(why) => {
                    let help = "\"all\", or a list such as [\"udp=4791\", \"ethertype=0x8915\", \
                                \"ipv6=fcbb:bb00::/32\"]: the kernel keeps the rest";
                    self.issue(Issue::new(written.span(), why).help(help));
                }
            }
        }
        if texts.is_empty() {
            let issue = Issue::new(written.span(), "a port that no frame is steered to")
                .help("leave `steering` out for every frame");
            self.issue(issue);
        }
        Steering::Matches(matches)
    }

    fn queues(&mut self, written: &S<Vec<u32>>) -> Vec<u32> {
        let mut queues = written.get_ref().clone();
        queues.sort_unstable();
        queues.dedup();
        if queues.is_empty() || queues.len() < written.get_ref().len() {
            let issue = Issue::new(written.span(), "a list of queues, each once, like [0, 1]")
                .help("leave `queues` out for all queues of the interface");
            self.issue(issue);
        }
        queues
    }

    /// Refuses an interface that is two ports: the program on it steers to one port's sockets.
    pub(super) fn external_once(&mut self, table: &ExternalTable) {
        let netns = |table: &ExternalTable| table.netns.as_ref().map(|s| s.get_ref().clone());
        let same = |other: &&ExternalTable| {
            other.interface.get_ref() == table.interface.get_ref() && netns(other) == netns(table)
        };
        let file = self.file;
        let Some(first) = file.external.iter().find(same) else { return };
        if !std::ptr::eq(first, table) {
            let issue = Issue::new(table.interface.span(), "this interface is a port already")
                .label("again here")
                .other(first.interface.span(), "first here")
                .help("one port takes all queues of an interface, or those that `queues` lists");
            self.issue(issue);
        }
    }
}

impl super::Topology {
    /// The external interface behind a port, when there is one.
    pub fn external(&self, attachment: Attachment) -> Option<&External> {
        match attachment {
            Attachment::External(index) => self.externals.get(index),
            Attachment::Link(..) | Attachment::None => None,
        }
    }

    /// What has no place in a switch on given interfaces: the first host or link, by name.
    pub fn beside_switches(&self) -> Option<String> {
        let host = self.hosts.first().map(|host| format!("host {}", host.config.name));
        host.or_else(|| self.links.first().map(|link| format!("link {}", link.name)))
    }

    /// `NODE:PORT` of an external port.
    pub fn external_port_name(&self, external: &External) -> String {
        let port = &self.switches[external.switch].config.ports[external.port.index()].name;
        format!("{}:{port}", self.node_name(NodeId::Switch(external.switch)))
    }
}
