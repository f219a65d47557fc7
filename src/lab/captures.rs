//! Captures of a run: one pcapng per port, with every frame that crosses it in node time.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::Failure;
use crate::lab::plan::Plan;
use crate::node::PortId;
use crate::replay::CaptureWriter;
use crate::sim::{Direction, Tap};
use crate::time::Time;

/// A port's capture. Dropping it flushes the file.
#[derive(Debug)]
pub struct PortCapture {
    writer: CaptureWriter<BufWriter<File>>,
    /// Set for all of a run's captures when one cannot be written: the run says so at its end.
    failed: Arc<AtomicBool>,
}

impl Tap for PortCapture {
    fn on_wire(&mut self, at: Time, direction: Direction, bytes: &[u8]) {
        if self.writer.write(0, at, direction, bytes, None).is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    fn finish(&mut self) {
        if self.writer.flush().is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
    }
}

/// Which ports of a run are captured, and where.
#[derive(Debug)]
pub struct Captures {
    /// Per planned node, its captured ports.
    taps: Vec<Vec<(PortId, PortCapture)>>,
    failed: Arc<AtomicBool>,
}

impl Captures {
    /// No capture, for a plan of `nodes` nodes.
    pub fn none(nodes: usize) -> Self {
        Self { taps: (0..nodes).map(|_| Vec::new()).collect(), failed: Arc::default() }
    }

    /// Opens a file in `directory` for each port that `wanted` names (`NODE:PORT`, or `all`).
    ///
    /// # Errors
    /// A name that no port of a node of ours has, with those that there are; a file that cannot be
    /// made.
    pub fn open(plan: &Plan, wanted: &[String], directory: &Path) -> Result<Self, Failure> {
        let all = wanted.iter().any(|name| name == "all");
        let names: Vec<&str> =
            plan.nodes.iter().flat_map(|node| &node.ports).map(|p| p.name.as_str()).collect();
        if let Some(unknown) = wanted.iter().find(|w| *w != "all" && !names.contains(&w.as_str())) {
            return Err(Failure::Usage(format!(
                "--capture {unknown}: no node of this lab has that port; there are {}",
                names.join(", ")
            )));
        }
        let mut captures = Self::none(plan.nodes.len());
        for (node, taps) in plan.nodes.iter().zip(&mut captures.taps) {
            for (number, port) in (0..).zip(&node.ports) {
                if !all && !wanted.contains(&port.name) {
                    continue;
                }
                let path = directory.join(file_name(&names, &port.name));
                let failed = Arc::clone(&captures.failed);
                let writer = open(&path, &port.name).map_err(|error| {
                    Failure::Running(format!(
                        "cannot write the capture {}: {error}",
                        path.display()
                    ))
                })?;
                taps.push((PortId(number), PortCapture { writer, failed }));
            }
        }
        Ok(captures)
    }

    /// The taps of a planned node, to put on its station.
    pub fn take(&mut self, node: usize) -> Vec<(PortId, PortCapture)> {
        std::mem::take(&mut self.taps[node])
    }

    /// Tells whether a capture could not be written whole; asked after the run.
    pub fn watch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.failed)
    }
}

/// The file of the port `name`: `NODE_PORT.pcapng`, but with the `-` that no name has where the
/// port of another node would have the same file (`a_b:1` and `a:b_1`).
fn file_name(names: &[&str], name: &str) -> String {
    let flat = |name: &str| name.replace(':', "_");
    let shared = names.iter().filter(|other| flat(other) == flat(name)).count() > 1;
    let stem = if shared { name.replace(':', "-") } else { flat(name) };
    format!("{stem}.pcapng")
}

fn open(path: &Path, port: &str) -> io::Result<CaptureWriter<BufWriter<File>>> {
    CaptureWriter::new(BufWriter::new(File::create(path)?), [port])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_a_file_of_its_own() {
        let names = ["a_b:1", "a:b_1", "a:1"];
        let files = names.map(|name| file_name(&names, name));
        assert_eq!(files, ["a_b-1.pcapng", "a-b_1.pcapng", "a_1.pcapng"]);
    }
}
