//! What became of a record.

use std::fmt;

use crate::ledger::DropReason;
use crate::node::PortId;
use crate::time::Time;

/// Why a record, or a frame of it, did not leave by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// Nothing was captured of it: it was never sent to the switch.
    ZeroLength,
    /// The choice of ingress gives it no port: it was never sent to the switch.
    NoIngressPort,
    /// No memory for it: it was never sent to the switch.
    StoreFull,
    /// The switch dropped it.
    Dropped(DropReason),
    /// It was for the switch itself.
    Consumed,
    /// Still in a queue of the switch when the replay ended.
    Queued,
}

impl Loss {
    /// The name under which it is counted.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ZeroLength => "zero_length",
            Self::NoIngressPort => "no_ingress_port",
            Self::StoreFull => "store_full",
            Self::Dropped(reason) => reason.name(),
            Self::Consumed => "consumed",
            Self::Queued => "queued",
        }
    }
}

/// What became of one record, once it is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The record's number.
    pub record: u64,
    /// The node time at which it came.
    pub at: Time,
    /// The port that it came by; None when it had none.
    pub ingress: Option<PortId>,
    /// Bytes captured.
    pub captured_bytes: u32,
    /// Bytes it had on the wire and that were not captured.
    pub missing_bytes: u32,
    /// Copies that the switch made, or tried to make, of it.
    pub copies: u32,
    /// The ports that it, or a copy, left by, in order of time.
    pub sent: Vec<PortId>,
    /// What became of the frames that did not leave.
    pub lost: Vec<Loss>,
}

impl Verdict {
    /// The text, with ports by their names: `forwarded to 2`, `flooded to 2 3`,
    /// `dropped: link_local`, `flooded to 2; dropped: queue_limit`.
    pub fn text<'a>(&'a self, ports: &'a [String]) -> impl fmt::Display + 'a {
        Text { verdict: self, ports }
    }
}

struct Text<'a> {
    verdict: &'a Verdict,
    ports: &'a [String],
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { sent, lost, copies, .. } = self.verdict;
        if !sent.is_empty() {
            f.write_str(if *copies > 0 { "flooded to" } else { "forwarded to" })?;
            for port in sent {
                match self.ports.get(port.index()) {
                    Some(name) => write!(f, " {name}")?,
                    None => write!(f, " #{}", port.0)?,
                }
            }
        }
        for (n, loss) in lost.iter().enumerate() {
            if n > 0 || !sent.is_empty() {
                f.write_str("; ")?;
            }
            match loss {
                Loss::Consumed | Loss::Queued => f.write_str(loss.name())?,
                _ => write!(f, "dropped: {}", loss.name())?,
            }
        }
        Ok(())
    }
}
