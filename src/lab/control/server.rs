//! The listening side of the control socket: one thread that waits for all its clients at once, so
//! that one who says nothing keeps nobody waiting, and their number is bounded.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Answer, Controlled, PATIENCE, Request};
use crate::cli::Failure;

/// The longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Clients at a time, at most: one more takes the place of the one that has been here for longest.
pub(super) const CLIENTS_MAX: usize = 64;

/// Reads of one client before the next one's turn.
const READS_PER_TURN: usize = 16;

/// The listening side. Dropping it ends its thread and removes the socket.
#[derive(Debug)]
pub struct ControlServer {
    path: PathBuf,
    /// The thread ends when this is gone.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Listens for the instance called `name`. A socket that a killed run left is replaced; the
    /// caller holds the name (see [`LabState`](crate::lab::netns::LabState)), so nobody else listens
    /// on it.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(name: &str, controlled: Arc<dyn Controlled>) -> Result<Self, Failure> {
        Self::start_at(super::socket_path(name), controlled)
    }

    pub(super) fn start_at(
        path: PathBuf,
        controlled: Arc<dyn Controlled>,
    ) -> Result<Self, Failure> {
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
        listener.set_nonblocking(true).map_err(cannot)?;
        let (alive, ends) = UnixStream::pair().map_err(cannot)?;
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(&listener, controlled.as_ref(), &ends))
            .map_err(cannot)?;
        Ok(Self { path, alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

#[allow(clippy::disallowed_methods, reason = "how long a client takes, which no node sees")]
fn now() -> Instant {
    Instant::now()
}

/// Serves clients until the far end of `ends` is gone.
fn serve(listener: &UnixListener, controlled: &dyn Controlled, ends: &UnixStream) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let mut fds = vec![
            PollFd::new(ends.as_fd(), PollFlags::POLLIN),
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(clients.iter().map(|c| PollFd::new(c.stream.as_fd(), c.waits_for())));
        let until = clients.iter().map(|client| client.deadline).min();
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            // A millisecond more, so that the deadline has passed when the wait is over.
            let wait = until.saturating_duration_since(now()).as_millis() + 1;
            PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
        });
        // An interrupted wait has nothing ready.
        let _ = poll(&mut fds, timeout);
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        if ready[0] {
            return;
        }
        let moment = now();
        for (client, ready) in clients.iter_mut().zip(&ready[2..]) {
            if *ready {
                client.go_on(controlled);
            } else if client.deadline <= moment {
                client.turn_out("no request came within 10 s");
            }
        }
        let (done, kept) = clients.into_iter().partition(|client: &Client| client.is_done);
        clients = kept;
        for client in done {
            if client.ends_run {
                // Whoever asked the run to end waits until this process has: the connection is left
                // open, and the kernel closes it with the process.
                std::mem::forget(client.stream);
            }
        }
        if ready[1] {
            accept(listener, &mut clients);
        }
    }
}

/// Takes in everybody who waits. Without room, the one who has been here for longest goes.
fn accept(listener: &UnixListener, clients: &mut Vec<Client>) {
    let turn_out_first = |clients: &mut Vec<Client>| {
        if !clients.is_empty() {
            let why = format!("others wait: at most {CLIENTS_MAX} are served at a time");
            clients.remove(0).turn_out(&why);
        }
    };
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if clients.len() >= CLIENTS_MAX {
                    turn_out_first(clients);
                }
                clients.push(Client::new(stream));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {
                // No descriptor is left for it: one is, when a client has gone.
                turn_out_first(clients);
                return;
            }
        }
    }
}

/// A connection: a request that comes, then an answer that goes.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    deadline: Instant,
    said: Vec<u8>,
    /// More came than a request has; the rest is read and forgotten, so that the answer arrives.
    is_too_long: bool,
    /// The answer, and how much of it has gone.
    answer: Option<(Vec<u8>, usize)>,
    ends_run: bool,
    is_done: bool,
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            deadline: now() + PATIENCE,
            said: Vec::new(),
            is_too_long: false,
            answer: None,
            ends_run: false,
            is_done: false,
        }
    }

    const fn waits_for(&self) -> PollFlags {
        if self.answer.is_some() { PollFlags::POLLOUT } else { PollFlags::POLLIN }
    }

    /// Does what can be done without waiting. A client that goes away costs only its own answer.
    fn go_on(&mut self, controlled: &dyn Controlled) {
        if self.answer.is_none() {
            match self.hear() {
                Ok(false) => return,
                Ok(true) => self.do_what_was_said(controlled),
                Err(_) => {
                    self.is_done = true;
                    return;
                }
            }
        }
        self.speak();
    }

    /// Reads on; true when the request is whole.
    fn hear(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 4_096];
        for _ in 0..READS_PER_TURN {
            let heard = match (&self.stream).read(&mut chunk) {
                Ok(0) => return Ok(true),
                Ok(count) => &chunk[..count],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let end = heard.iter().position(|byte| *byte == b'\n');
            let line = &heard[..end.unwrap_or(heard.len())];
            self.is_too_long |= self.said.len() + line.len() > REQUEST_BYTES_MAX;
            if !self.is_too_long {
                self.said.extend_from_slice(line);
            }
            if end.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn do_what_was_said(&mut self, controlled: &dyn Controlled) {
        let answer = match self.request() {
            Ok(Request::Status) => Answer::Ok(controlled.status()),
            Ok(Request::Show) => Answer::Ok(controlled.show()),
            Ok(Request::Set { path, value }) => match controlled.set(&path, &value) {
                Ok(now) => Answer::Ok(now),
                Err(Failure::Usage(why)) => Answer::Usage(why),
                Err(failure) => Answer::Error(failure.to_string()),
            },
            Ok(Request::Down) => {
                self.ends_run = true;
                controlled.down();
                Answer::Ok(serde_json::Value::Null)
            }
            Err(why) => Answer::Error(why),
        };
        self.answer_with(&answer);
    }

    fn request(&self) -> Result<Request, String> {
        if self.is_too_long {
            return Err(format!("a request has at most {REQUEST_BYTES_MAX} bytes"));
        }
        let text = std::str::from_utf8(&self.said)
            .map_err(|error| format!("not UTF-8 from byte {}", error.valid_up_to()))?;
        serde_json::from_str(text).map_err(|error| format!("not a request: {error}"))
    }

    fn answer_with(&mut self, answer: &Answer) {
        let text = match serde_json::to_string(answer) {
            Ok(text) => text + "\n",
            // Plain data, keyed by strings.
            Err(error) => unreachable!("an answer is JSON: {error}"),
        };
        self.answer = Some((text.into_bytes(), 0));
        self.deadline = now() + PATIENCE;
    }

    /// Sends on.
    fn speak(&mut self) {
        let Some((text, gone)) = &mut self.answer else { return };
        while *gone < text.len() {
            match (&self.stream).write(&text[*gone..]) {
                Ok(count) => *gone += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.is_done = true;
    }

    /// Ends the connection, and says why unless it is being answered.
    fn turn_out(&mut self, why: &str) {
        if self.answer.is_none() {
            self.answer_with(&Answer::Error(why.to_owned()));
            self.speak();
        }
        self.is_done = true;
    }
}
