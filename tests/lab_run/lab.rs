//! A lab of a test's own: its file, its name, its processes. Gone when it drops.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::namespaces::try_run;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Looks at a lab that a test waits through before it gives up. A look takes a process, some
/// milliseconds at least.
const LOOKS_MAX: u32 = 4_000;

/// The command under test.
pub(crate) fn tailwater(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailwater"));
    command.args(args).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a tool that the test needs; fails with its name where it is missing.
pub(crate) fn tool(command: &str) -> String {
    let (ok, out, err) = try_run(command);
    assert!(ok, "{command}: {out}{err}");
    out
}

/// Waits until `look` gives something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look() {
            return found;
        }
    }
    panic!("waited in vain: {what}");
}

/// A topology file under a name that no other lab has.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) name: String,
    folder: tempfile::TempDir,
}

impl Lab {
    /// A lab of `text`, which has no `name` of its own.
    pub(crate) fn new(text: &str) -> Self {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{}-{n}", std::process::id());
        let folder = tempfile::tempdir().expect("a folder");
        let lab = Self { name, folder };
        std::fs::write(lab.file(), format!("name = \"{}\"\n{text}", lab.name)).expect("writes");
        lab
    }

    /// A testbed that ships, with `changes` made to its text, each of which must apply.
    pub(crate) fn testbed(name: &str, changes: &[(&str, &str)]) -> Self {
        let path = format!("netns-testbed/{name}.toml");
        let mut text = std::fs::read_to_string(path).expect("a testbed");
        for (from, to) in changes.iter().chain([&(format!("name = \"{name}\"\n").as_str(), "")]) {
            assert!(text.contains(from), "{name} has no {from}");
            text = text.replace(from, to);
        }
        Self::new(&text)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("lab.toml")
    }

    fn file_name(&self) -> String {
        self.file().display().to_string()
    }

    /// The run directory called `name`.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The namespace of a node.
    pub(crate) fn netns(&self, node: &str) -> String {
        format!("tw-{}-{node}", self.name)
    }

    /// Starts a command on the file that writes its results into the run directory `dir`.
    pub(crate) fn command(&self, command: &[&str], dir: &str, flags: &[&str]) -> Command {
        let mut run = tailwater(command);
        run.arg(self.file_name()).args(flags).arg("--run-dir").arg(self.dir(dir));
        run
    }

    /// Runs a command to its end; `code` is how it must end.
    pub(crate) fn run(&self, command: &[&str], dir: &str, flags: &[&str], code: i32) -> Output {
        let output = self.command(command, dir, flags).output().expect("it runs");
        assert_eq!(
            output.status.code(),
            Some(code),
            "{command:?} {flags:?}: {}{}",
            stdout(&output),
            stderr(&output)
        );
        output
    }

    /// The report of the run directory `dir`.
    pub(crate) fn report(&self, dir: &str) -> Value {
        let path = self.dir(dir).join("report.json");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).expect("JSON")
    }

    /// Starts `lab run` and waits until its socket answers.
    pub(crate) fn start(&self, dir: &str, flags: &[&str]) -> Running<'_> {
        let child = self
            .command(&["lab", "run"], dir, flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut running = Running { lab: self, child };
        until("the lab runs", || {
            assert_eq!(running.child.try_wait().expect("a child"), None, "it ended too soon");
            self.show()
        });
        running
    }

    /// Brings the lab up; it goes when the result drops.
    pub(crate) fn up(&self, flags: &[&str]) -> Up<'_> {
        let output = self.run(&["lab", "up"], "up", &[&["--detach"], flags].concat(), 0);
        assert_eq!(stdout(&output), "ready\n");
        Up { lab: self }
    }

    /// The counters of the running lab.
    pub(crate) fn show(&self) -> Option<Value> {
        let output = tailwater(&["show", &self.name, "--json"]).output().expect("it runs");
        output.status.success().then(|| serde_json::from_str(&stdout(&output)).expect("JSON"))
    }

    /// One counter of the running lab, by its JSON pointer.
    pub(crate) fn counter(&self, pointer: &str) -> u64 {
        let shown = self.show().expect("the lab answers");
        shown.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Waits until a counter has grown by `more`.
    pub(crate) fn wait_for_more(&self, pointer: &str, more: u64) {
        let before = self.counter(pointer);
        until(pointer, || (self.counter(pointer) >= before + more).then_some(()));
    }

    /// Sets something on the running lab.
    pub(crate) fn set(&self, what: &str) {
        let output = tailwater(&["set", &self.name, what]).output().expect("it runs");
        assert!(output.status.success(), "{what}: {}", stderr(&output));
    }

    /// Runs a program in a node.
    pub(crate) fn exec(&self, node: &str, command: &str) -> Output {
        let mut exec = tailwater(&["lab", "exec", &self.name, node, "--"]);
        exec.args(command.split_whitespace()).output().expect("it runs")
    }

    /// Runs a program in a node that must succeed, and gives what it printed.
    pub(crate) fn exec_ok(&self, node: &str, command: &str) -> String {
        let output = self.exec(node, command);
        assert!(
            output.status.success(),
            "{node}: {command}: {}{}",
            stdout(&output),
            stderr(&output)
        );
        stdout(&output)
    }

    /// Ends the lab, from another process than its own.
    pub(crate) fn down(&self) -> Output {
        tailwater(&["lab", "down", &self.name]).output().expect("it runs")
    }

    /// That nothing of the lab is left on the machine.
    pub(crate) fn assert_gone(&self) {
        let left = |folder: &str, prefix: &str| -> Vec<String> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.filter(|name| name.starts_with(prefix)).collect()
        };
        assert_eq!(left("/run/netns", &format!("tw-{}-", self.name)), Vec::<String>::new());
        assert_eq!(left("/run/tailwater", &format!("{}.", self.name)), Vec::<String>::new());
    }

    /// That a report says that all held: conservation of frames, and a UMEM with nothing missing.
    pub(crate) fn assert_sound(&self, dir: &str) -> Value {
        let report = self.report(dir);
        let invariants = report["invariants"].as_object().expect("invariants");
        let held = invariants.values().all(|held| *held == Value::Bool(true));
        assert!(held && invariants.contains_key("frames_conserved"), "{invariants:?} {report:#}");
        assert_eq!(report["violations"].as_array().map_or(0, Vec::len), 0);
        report
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if Path::new("/run/tailwater").join(format!("{}.json", self.name)).exists() {
            let _ = self.down();
        }
    }
}

/// A `lab run` under way. Killed when it drops.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    lab: &'a Lab,
    pub(crate) child: Child,
}

impl Running<'_> {
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("it runs");
    }

    /// Waits for the end, and gives the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("a child").code()
    }

    /// Ends it by SIGINT and checks that nothing of it stays.
    pub(crate) fn interrupt(mut self) {
        self.signal(nix::sys::signal::Signal::SIGINT);
        assert_eq!(self.wait(), Some(130));
        self.lab.assert_gone();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A lab that stays up. Ended when it drops.
#[derive(Debug)]
pub(crate) struct Up<'a> {
    lab: &'a Lab,
}

impl Up<'_> {
    /// Ends the lab; it must have left nothing.
    pub(crate) fn down(self) {
        let output = self.lab.down();
        assert!(output.status.success(), "{}", stderr(&output));
        self.lab.assert_gone();
    }

    /// The process of the lab.
    pub(crate) fn pid(&self) -> nix::unistd::Pid {
        let path = Path::new("/run/tailwater").join(format!("{}.json", self.lab.name));
        let state: Value =
            serde_json::from_str(&std::fs::read_to_string(path).expect("state")).expect("JSON");
        let pid = state["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid");
        nix::unistd::Pid::from_raw(pid)
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        let _ = self.lab.down();
    }
}
