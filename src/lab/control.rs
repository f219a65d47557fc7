//! The control socket `/run/tailwater/NAME.sock` of a running instance: one JSON line asks, one
//! answers, and the connection ends. `down` is answered at once, and its connection ends with the
//! process, so that who asked can wait for that.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::netns::{LabState, Liveness, RUN_DIR};
use crate::cli::Failure;

/// The longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// How long a client may take to say its request, and the instance to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a running instance does when it is asked. Called on the socket's thread, so an
/// implementation answers from snapshots and hands changes to its workers.
pub trait Controlled: Send + Sync {
    /// Name, driver, clock, node time, what runs.
    fn status(&self) -> Value;
    /// The counters, shaped as `report.json`.
    fn show(&self) -> Value;
    /// Changes one setting; gives what it is now.
    ///
    /// # Errors
    /// When there is no such path or it does not take that value.
    fn set(&self, path: &str, value: &str) -> Result<Value, String>;
    /// Ends the run; returns at once.
    fn down(&self);
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// What runs.
    Status,
    /// The counters.
    Show,
    /// Changes a setting.
    Set {
        /// What to change, such as `links.h1:eth0-s1:1.loss`.
        path: String,
        /// The new value as the topology file spells it.
        value: String,
    },
    /// Ends the run.
    Down,
}

/// What the instance answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Answer {
    /// It did; here is the result.
    Ok(Value),
    /// It did not; this is why.
    Error(String),
}

/// The path of the socket of the instance called `name`.
pub fn socket_path(name: &str) -> PathBuf {
    Path::new(RUN_DIR).join(format!("{name}.sock"))
}

/// The listening side. Dropping it ends its thread and removes the socket.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Listens for the instance called `name`. A socket that a killed run left is replaced; the
    /// caller holds the name (see [`LabState`]), so nobody else listens on it.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(name: &str, controlled: Arc<dyn Controlled>) -> Result<Self, Failure> {
        Self::start_at(socket_path(name), controlled)
    }

    fn start_at(path: PathBuf, controlled: Arc<dyn Controlled>) -> Result<Self, Failure> {
        let cannot =
            |error| Failure::Running(format!("cannot listen on {}: {error}", path.display()));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(cannot)?;
        }
        if path.exists() {
            std::fs::remove_file(&path).map_err(cannot)?;
        }
        let listener = UnixListener::bind(&path).map_err(cannot)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(cannot)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(&listener, controlled.as_ref(), &stopped))
            .map_err(cannot)?;
        Ok(Self { path, stop, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // A connection wakes the thread from accept.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn serve(listener: &UnixListener, controlled: &dyn Controlled, stop: &AtomicBool) {
    for stream in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        // A client that says nothing or goes away costs only its own answer.
        let Ok(stream) = stream else { continue };
        if let Ok((stream, true)) = answer(stream, controlled) {
            // Whoever asked the run to end waits until this process has: the connection is left
            // open, and the kernel closes it with the process.
            std::mem::forget(stream);
        }
    }
}

/// Answers one request; true when it was `down`.
fn answer(stream: UnixStream, controlled: &dyn Controlled) -> std::io::Result<(UnixStream, bool)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let mut down = false;
    let answer = match serde_json::from_str(&line) {
        Ok(Request::Status) => Answer::Ok(controlled.status()),
        Ok(Request::Show) => Answer::Ok(controlled.show()),
        Ok(Request::Set { path, value }) => match controlled.set(&path, &value) {
            Ok(now) => Answer::Ok(now),
            Err(why) => Answer::Error(why),
        },
        Ok(Request::Down) => {
            down = true;
            controlled.down();
            Answer::Ok(Value::Null)
        }
        Err(error) => Answer::Error(format!("not a request: {error}")),
    };
    let mut text = serde_json::to_string(&answer)?;
    text.push('\n');
    (&stream).write_all(text.as_bytes())?;
    Ok((stream, down))
}

/// Asks the instance called `name`.
///
/// # Errors
/// When no such instance runs, or it does not do what it is asked.
pub fn ask(name: &str, request: &Request) -> Result<Value, Failure> {
    match LabState::look_up(name)? {
        Liveness::Running(_) => {}
        Liveness::Absent => {
            return Err(Failure::Running(format!(
                "nothing called {name} runs here: start it with `tailwater lab up FILE`"
            )));
        }
        Liveness::Stale(state) => {
            return Err(Failure::Running(format!(
                "{name} (pid {}) was killed: clear what it left with `tailwater lab down {name}`",
                state.pid
            )));
        }
    }
    ask_at(&socket_path(name), request)
}

fn ask_at(path: &Path, request: &Request) -> Result<Value, Failure> {
    let cannot = |error| Failure::Running(format!("cannot ask {}: {error}", path.display()));
    let stream = UnixStream::connect(path).map_err(cannot)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(cannot)?;
    let mut text = serde_json::to_string(request).map_err(std::io::Error::from).map_err(cannot)?;
    text.push('\n');
    (&stream).write_all(text.as_bytes()).map_err(cannot)?;
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    reader.read_line(&mut line).map_err(cannot)?;
    let answer = serde_json::from_str(&line).map_err(std::io::Error::from).map_err(cannot)?;
    if *request == Request::Down {
        // Ends when the process does; cleaning up a large lab takes its time.
        stream.set_read_timeout(Some(PATIENCE * 6)).map_err(cannot)?;
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).map_err(cannot)?;
    }
    match answer {
        Answer::Ok(value) => Ok(value),
        Answer::Error(why) => Err(Failure::Running(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Echo(AtomicBool);

    impl Controlled for Echo {
        fn status(&self) -> Value {
            json!({ "name": "echo" })
        }
        fn show(&self) -> Value {
            json!({ "switches": {} })
        }
        fn set(&self, path: &str, value: &str) -> Result<Value, String> {
            if path == "links.a.loss" { Ok(json!(value)) } else { Err(format!("no `{path}`")) }
        }
        fn down(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn asks_and_answers_and_survives_nonsense() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        let echo = Arc::new(Echo(AtomicBool::new(false)));
        let controlled: Arc<dyn Controlled> = Arc::<Echo>::clone(&echo);
        let server = ControlServer::start_at(path.clone(), controlled).expect("listens");
        assert_eq!(ask_at(&path, &Request::Status), Ok(json!({ "name": "echo" })));
        let set = |path_: &str| Request::Set { path: path_.to_owned(), value: "1%".to_owned() };
        assert_eq!(ask_at(&path, &set("links.a.loss")), Ok(json!("1%")));
        assert_eq!(
            ask_at(&path, &set("links.b.loss")),
            Err(Failure::Running("no `links.b.loss`".to_owned()))
        );
        for nonsense in ["", "\n", "{\"op\":\"dance\"}\n", "{\"op\":\"status\",\"x\":1}\n"] {
            let stream = UnixStream::connect(&path).expect("connects");
            (&stream).write_all(nonsense.as_bytes()).expect("writes");
            stream.shutdown(std::net::Shutdown::Write).expect("shuts");
            let mut answer = String::new();
            BufReader::new(&stream).read_line(&mut answer).expect("an answer");
            assert!(answer.contains("\"error\"") || answer.contains("\"ok\""), "{answer}");
        }
        assert_eq!(ask_at(&path, &Request::Show), Ok(json!({ "switches": {} })));
        drop(server);
        assert!(!path.exists());
    }
}
