//! The control socket `/run/tailwater/NAME.sock` of a running instance: one JSON line asks, one
//! answers, and the connection ends. `down` is answered at once, and its connection ends with the
//! process, so that who asked can wait for that.

mod server;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use server::ControlServer;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::netns::{LabState, Liveness, RUN_DIR};
use crate::cli::Failure;

/// How long a client may take to say its request and to read the answer, and the instance to answer.
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
    /// [`Failure::Usage`] when there is no such path or it does not take that value;
    /// [`Failure::Running`] when it cannot be changed now.
    fn set(&self, path: &str, value: &str) -> Result<Value, Failure>;
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
    /// It cannot: what was asked for makes no sense here, and this would.
    Usage(String),
}

/// The path of the socket of the instance called `name`.
pub fn socket_path(name: &str) -> PathBuf {
    Path::new(RUN_DIR).join(format!("{name}.sock"))
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
        Answer::Usage(why) => Err(Failure::Usage(why)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use serde_json::json;

    struct Echo(AtomicBool);

    impl Controlled for Echo {
        fn status(&self) -> Value {
            json!({ "name": "echo" })
        }
        fn show(&self) -> Value {
            // More than a socket takes at once.
            json!({ "switches": "s".repeat(1 << 20) })
        }
        fn set(&self, path: &str, value: &str) -> Result<Value, Failure> {
            match path {
                "links.a.loss" => Ok(json!(value)),
                "busy" => Err(Failure::Running("not now".to_owned())),
                _ => Err(Failure::Usage(format!("no `{path}`"))),
            }
        }
        fn down(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    struct Fixture {
        _folder: tempfile::TempDir,
        path: PathBuf,
        server: ControlServer,
    }

    fn fixture() -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        let server = ControlServer::start_at(path.clone(), Arc::new(Echo(AtomicBool::new(false))))
            .expect("listens");
        Fixture { _folder: folder, path, server }
    }

    /// Says `bytes`, and perhaps that nothing more comes; gives the answer.
    fn say(path: &Path, bytes: &[u8], ends: bool) -> String {
        let stream = UnixStream::connect(path).expect("connects");
        (&stream).write_all(bytes).expect("writes");
        if ends {
            stream.shutdown(std::net::Shutdown::Write).expect("shuts");
        }
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn asks_and_answers_and_survives_nonsense() {
        let Fixture { path, server, _folder } = fixture();
        assert_eq!(ask_at(&path, &Request::Status), Ok(json!({ "name": "echo" })));
        let set = |path_: &str| Request::Set { path: path_.to_owned(), value: "1%".to_owned() };
        assert_eq!(ask_at(&path, &set("links.a.loss")), Ok(json!("1%")));
        let refused = Failure::Usage("no `links.b.loss`".to_owned());
        assert_eq!(ask_at(&path, &set("links.b.loss")), Err(refused));
        assert_eq!(ask_at(&path, &set("busy")), Err(Failure::Running("not now".to_owned())));
        for (nonsense, wants) in [
            ("", "not a request"),
            ("\n", "not a request"),
            ("{\"op\":\"dance\"}\n", "unknown variant"),
            ("{\"op\":\"status\"", "not a request"),
            ("{\"op\":\"set\",\"path\":\"a\"}", "missing field"),
        ] {
            let answer = say(&path, nonsense.as_bytes(), true);
            assert!(answer.starts_with("{\"error\":") && answer.contains(wants), "{answer}");
        }
        let shown = ask_at(&path, &Request::Show).expect("a large answer");
        assert_eq!(shown["switches"].as_str().map(str::len), Some(1 << 20));
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_too_long_or_no_text_is_answered() {
        let Fixture { path, server, _folder } = fixture();
        for ends in [false, true] {
            let mut long = vec![b'x'; 3 << 20];
            long.push(b'\n');
            let answer = say(&path, &long, ends);
            assert_eq!(answer, "{\"error\":\"a request has at most 65536 bytes\"}\n");
            let answer = say(&path, b"{\"op\":\"st\xff\xfe\"}\n", ends);
            assert_eq!(answer, "{\"error\":\"not UTF-8 from byte 9\"}\n");
        }
        // The longest that is read: white space before a request.
        let mut padded = vec![b' '; 65_537 - 15];
        padded.extend_from_slice(b"{\"op\":\"status\"}\n");
        assert!(say(&path, &padded[1..], false).starts_with("{\"ok\":"));
        assert!(say(&path, &padded, false).starts_with("{\"error\":"));
        drop(server);
    }

    #[test]
    fn those_who_say_nothing_keep_nobody_waiting() {
        let Fixture { path, server, _folder } = fixture();
        let silent: Vec<UnixStream> =
            (0..200).map(|_| UnixStream::connect(&path).expect("connects")).collect();
        for stream in &silent {
            // One that has been turned out reads no more.
            let _ = (&*stream).write_all(b"{\"op\"");
        }
        assert_eq!(ask_at(&path, &Request::Status), Ok(json!({ "name": "echo" })));
        // Those who came first made room, and are told; those who came last may still ask.
        let mut answer = String::new();
        BufReader::new(&silent[0]).read_line(&mut answer).expect("an answer");
        assert!(answer.contains("at most 64 are served at a time"), "{answer}");
        let last = &silent[199];
        (&*last).write_all(b":\"status\"}\n").expect("writes");
        let mut answer = String::new();
        BufReader::new(last).read_line(&mut answer).expect("an answer");
        assert_eq!(answer, "{\"ok\":{\"name\":\"echo\"}}\n");
        drop(server);
    }
}
