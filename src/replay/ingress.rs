//! By which port a record enters the switch.

use std::collections::BTreeMap;

use super::Record;
use crate::node::PortId;
use crate::wire::MacAddr;

/// How the ingress port of a record is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// All by one port.
    Port(PortId),
    /// Interface n of the capture by port n, both counted from 0; others have no port.
    Interface,
    /// One after the other.
    RoundRobin {
        /// The port of the next record.
        next: u16,
    },
    /// By the source address.
    SourceMac {
        /// The stations' ports.
        stations: BTreeMap<MacAddr, PortId>,
        /// The port of all others; None when they have none.
        others: Option<PortId>,
    },
}

/// An `--ingress` that does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngressError {
    /// None of the four forms.
    #[error(
        "`{0}` is not a way to choose the ingress port: port:PORT, interface, round-robin or \
         mac:MAC=PORT,...,*=PORT"
    )]
    Form(String),
    /// No such port.
    #[error("`{port}` is not a port of the switch, which has {ports}")]
    Port {
        /// What was written.
        port: String,
        /// The names there are.
        ports: String,
    },
    /// Not an address.
    #[error(transparent)]
    Mac(#[from] crate::wire::mac::MacAddrError),
}

impl Ingress {
    /// Reads `port:1`, `interface`, `round-robin` or `mac:02:00:00:00:00:01=1,*=2`, with ports by
    /// the names that they have in `ports`.
    ///
    /// # Errors
    /// [`IngressError`], with what would have been right.
    pub fn parse(text: &str, ports: &[&str]) -> Result<Self, IngressError> {
        let port = |name: &str| {
            ports
                .iter()
                .position(|have| *have == name)
                .and_then(|index| u16::try_from(index).ok())
                .map(PortId)
                .ok_or_else(|| IngressError::Port {
                    port: name.to_owned(),
                    ports: ports.join(", "),
                })
        };
        let form = || IngressError::Form(text.to_owned());
        match text.split_once(':') {
            None if text == "interface" => Ok(Self::Interface),
            None if text == "round-robin" => Ok(Self::RoundRobin { next: 0 }),
            Some(("port", name)) => Ok(Self::Port(port(name)?)),
            Some(("mac", list)) => {
                let (mut stations, mut others) = (BTreeMap::new(), None);
                for entry in list.split(',') {
                    let (mac, name) = entry.split_once('=').ok_or_else(form)?;
                    if mac == "*" {
                        others = Some(port(name)?);
                    } else {
                        stations.insert(mac.parse()?, port(name)?);
                    }
                }
                Ok(Self::SourceMac { stations, others })
            }
            _ => Err(form()),
        }
    }

    /// The port of `record` in a switch of `ports` ports, or None when this way gives it none.
    pub fn choose(&mut self, record: &Record, ports: u16) -> Option<PortId> {
        match self {
            Self::Port(port) => Some(*port),
            Self::Interface => {
                u16::try_from(record.interface).ok().filter(|port| *port < ports).map(PortId)
            }
            Self::RoundRobin { next } => {
                let port = *next;
                *next = if port + 1 < ports { port + 1 } else { 0 };
                Some(PortId(port))
            }
            Self::SourceMac { stations, others } => record
                .bytes
                .get(6..12)
                .and_then(|source| source.try_into().ok())
                .and_then(|octets| stations.get(&MacAddr(octets)).copied())
                .or(*others),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_forms_and_chooses() {
        let ports = ["1", "2", "up"];
        let mut record = Record { interface: 1, bytes: vec![2; 60], ..Record::default() };
        let choose = |text: &str, record: &Record| -> Vec<Option<u16>> {
            let mut ingress = Ingress::parse(text, &ports).expect("a form");
            (0..4).map(|_| ingress.choose(record, 3).map(|port| port.0)).collect()
        };
        assert_eq!(choose("port:up", &record), [Some(2); 4]);
        assert_eq!(choose("interface", &record), [Some(1); 4]);
        assert_eq!(choose("round-robin", &record), [Some(0), Some(1), Some(2), Some(0)]);
        assert_eq!(choose("mac:02:02:02:02:02:02=2,*=1", &record), [Some(1); 4]);
        assert_eq!(choose("mac:02:02:02:02:02:03=2,*=1", &record), [Some(0); 4]);
        assert_eq!(choose("mac:02:02:02:02:02:03=2", &record), [None; 4]);
        record.interface = 3;
        record.bytes.truncate(11);
        assert_eq!(choose("interface", &record), [None; 4]);
        assert_eq!(choose("mac:02:02:02:02:02:02=2", &record), [None; 4]);
    }

    #[test]
    fn what_does_not_read_says_what_would() {
        for (text, says) in [
            ("all", "round-robin"),
            ("port:3", "which has 1, 2"),
            ("mac:02=1", "not a MAC address"),
            ("mac:1", "mac:MAC=PORT"),
        ] {
            let error = Ingress::parse(text, &["1", "2"]).expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
