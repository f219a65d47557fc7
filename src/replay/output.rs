//! The files of a replay: a capture per port, one of what was lost, and the verdict of each record.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::driver::{Lost, Outcome, Sent};
use super::{CaptureWriter, Direction, Packet, Verdict};
use crate::node::PortId;

/// Writes `port-NAME.pcapng` for each port, `lost.pcapng` and `verdicts.csv`.
#[derive(Debug)]
pub struct OutputFiles {
    names: Vec<String>,
    ports: Vec<CaptureWriter<BufWriter<File>>>,
    lost: CaptureWriter<BufWriter<File>>,
    verdicts: BufWriter<File>,
    comment: String,
}

/// The file of a port: by its name where that is plain, else by its place.
fn port_file(index: usize, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.chars().all(plain) {
        format!("port-{name}.pcapng")
    } else {
        format!("port-#{index}.pcapng")
    }
}

impl OutputFiles {
    /// Makes the files in `dir`, for ports of these names.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(dir: &Path, names: Vec<String>) -> io::Result<Self> {
        let file = |name: &str| {
            let path = dir.join(name);
            File::create(&path).map(BufWriter::new).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })
        };
        let ports = names
            .iter()
            .enumerate()
            .map(|(index, name)| CaptureWriter::new(file(&port_file(index, name))?, [name]))
            .collect::<io::Result<_>>()?;
        // A lost frame is one that came by a port; the last interface is for those with none.
        let none = "no ingress port".to_owned();
        let lost = CaptureWriter::new(file("lost.pcapng")?, names.iter().chain([&none]))?;
        let mut verdicts = file("verdicts.csv")?;
        writeln!(verdicts, "record,node_time_ns,ingress,captured_bytes,missing_bytes,verdict")?;
        Ok(Self { names, ports, lost, verdicts, comment: String::new() })
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish(mut self) -> io::Result<()> {
        for port in self.ports {
            port.finish()?;
        }
        self.lost.finish()?;
        self.verdicts.flush()
    }

    /// Begins the comment: which record it was, and by which port it came.
    fn tell(&mut self, record: Option<u64>, ingress: Option<PortId>) {
        self.comment.clear();
        let _ = match record {
            Some(record) => write!(self.comment, "record {record}"),
            None => write!(self.comment, "made by the switch"),
        };
        if let Some(name) = ingress.and_then(|port| self.names.get(port.index())) {
            let _ = write!(self.comment, " in by {name}");
        }
        self.comment.push_str(": ");
    }
}

fn len_original(bytes: &[u8], missing_bytes: u32) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_add(missing_bytes)
}

impl Outcome for OutputFiles {
    fn sent(&mut self, frame: &Sent<'_>) -> io::Result<()> {
        self.tell(frame.record, frame.ingress);
        let what = if frame.flooded { "flooded" } else { "forwarded" };
        let _ = write!(self.comment, "{what}, waited {}", frame.waited);
        let Some(port) = self.ports.get_mut(frame.port.index()) else {
            return Err(io::Error::other(format!("a frame left by port {}", frame.port.0)));
        };
        port.write_packet(&Packet {
            interface: 0,
            timestamp_ns: frame.timestamp_ns,
            direction: Direction::Outbound,
            bytes: frame.bytes,
            len_original: len_original(frame.bytes, frame.missing_bytes),
            comment: Some(&self.comment),
        })
    }

    fn lost(&mut self, frame: &Lost<'_>) -> io::Result<()> {
        let Some(bytes) = frame.bytes else {
            return Ok(());
        };
        self.tell(frame.record, frame.ingress);
        self.comment.push_str("lost: ");
        self.comment.push_str(frame.loss.name());
        let interface = frame.ingress.map_or(self.names.len(), PortId::index);
        self.lost.write_packet(&Packet {
            interface: u32::try_from(interface).unwrap_or(u32::MAX),
            timestamp_ns: frame.timestamp_ns,
            direction: Direction::Inbound,
            bytes,
            len_original: len_original(bytes, frame.missing_bytes),
            comment: Some(&self.comment),
        })
    }

    fn settled(&mut self, verdict: &Verdict) -> io::Result<()> {
        let Verdict { record, at, captured_bytes, missing_bytes, .. } = verdict;
        let port = verdict.ingress.and_then(|port| self.names.get(port.index()));
        writeln!(
            self.verdicts,
            "{record},{},{},{captured_bytes},{missing_bytes},{}",
            at.as_ns(),
            port.map_or("", String::as_str),
            verdict.text(&self.names)
        )
    }
}
