//! `tailwater switch` on interfaces that are there: kernel stacks talk across it, the kernel keeps
//! what is not steered, and ports come and go. Needs root.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "kernel sockets and clocks at the far ends"
)]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

mod namespaces;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use namespaces::{run, try_run};
use tailwater::xdp::{NetNs, nic};

/// Whatever is waited for is there long before this.
const PATIENCE: Duration = Duration::from_secs(60);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A namespace for the switch's interfaces and one for each far end, gone when this drops.
struct Site {
    name: String,
    far: u32,
    folder: tempfile::TempDir,
}

impl Site {
    /// `e1`, `e2`, … in the switch's namespace lead to `eth0` of 10.9.0.1, 10.9.0.2, …
    fn new(far: u32, queues: u32) -> Self {
        let name = format!("tw-sw-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let site = Self { name, far, folder: tempfile::tempdir().expect("a folder") };
        for n in 0..=far {
            run(&format!("ip netns add {}", site.at(n)));
            for scope in ["all", "default"] {
                let key = format!("net.ipv6.conf.{scope}.disable_ipv6=1");
                run(&format!("ip netns exec {} sysctl -qw {key}", site.at(n)));
            }
        }
        (1..=far).for_each(|n| site.connect(n, queues));
        site
    }

    /// The namespace of far end `n`, or with 0 that of the switch's interfaces.
    fn at(&self, n: u32) -> String {
        format!("{}-{n}", self.name)
    }

    fn netns(&self, n: u32) -> NetNs {
        NetNs::Named(self.at(n))
    }

    fn connect(&self, n: u32, queues: u32) {
        let (near, far) = (self.at(0), self.at(n));
        let q = format!("numrxqueues {queues} numtxqueues {queues}");
        run(&format!("ip -n {near} link add e{n} {q} type veth peer name eth0 netns {far} {q}"));
        nic::turn_harmful_off(&self.netns(n), "eth0").expect("it is there");
        run(&format!("ip -n {far} addr add 10.9.0.{n}/24 dev eth0"));
        run(&format!("ip -n {near} link set e{n} up"));
        run(&format!("ip -n {far} link set eth0 up"));
    }

    /// Starts the switch with this `[[external]]` text, and returns when it is ready.
    fn start(&self, externals: &str, more: &[&str]) -> Running {
        let file = self.folder.path().join("switch.toml");
        let text = format!(
            "name = \"{}\"\n[switch.s1]\n[lab]\nring = 256\n[defaults]\nswitch.buffer = \"1MB\"\n\
             {externals}",
            self.name
        );
        std::fs::write(&file, text).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tailwater"))
            .arg("switch")
            .arg(&file)
            .arg("--run-dir")
            .arg(self.folder.path().join("run"))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it reads");
        if line.trim() != "ready" {
            let mut why = String::new();
            child.stderr.take().expect("piped").read_to_string(&mut why).expect("it reads");
            let _ = child.wait();
            panic!("not ready: {line}{why}");
        }
        Running { child: Some(child), out }
    }

    fn external(&self, n: u32, more: &str) -> String {
        let netns = self.at(0);
        format!(
            "[[external]]\nport = \"s1:{n}\"\ninterface = \"e{n}\"\nnetns = \"{netns}\"\n{more}\n"
        )
    }

    fn report(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(self.folder.path().join("run/report.json"));
        serde_json::from_str(&text.expect("a report")).expect("JSON")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A switch that was killed leaves its state file.
            let _ = try_run(&format!("{} lab down {}", env!("CARGO_BIN_EXE_tailwater"), self.name));
        }
        for n in 0..=self.far {
            let _ = try_run(&format!("ip netns del {}", self.at(n)));
        }
    }
}

/// The switch's process; killed when the test fails.
struct Running {
    child: Option<Child>,
    out: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Ends it as Ctrl-C does; gives what it printed.
    fn interrupt(mut self) -> String {
        let mut child = self.child.take().expect("it runs");
        run(&format!("kill -INT {}", child.id()));
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("it reads");
        let status = child.wait().expect("it ends");
        let mut why = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut why).expect("it reads");
        assert!(status.success(), "{status}: {text}{why}");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Tries until it works.
fn eventually(what: &str, mut works: impl FnMut() -> bool) {
    let began = Instant::now();
    while !works() {
        assert!(began.elapsed() < PATIENCE, "{what} does not work");
    }
}

fn pings(site: &Site, from: u32, to: &str) -> bool {
    try_run(&format!("ip netns exec {} ping -q -c 1 -W 1 {to}", site.at(from))).0
}

fn iperf(site: &Site, how: &str) -> serde_json::Value {
    let mut server = Command::new("ip")
        .args(["netns", "exec", &site.at(2), "iperf3", "--server", "--one-off", "--forceflush"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ip runs");
    let lines = BufReader::new(server.stdout.take().expect("piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listening")), "the server listens");
    let client = format!("ip netns exec {} iperf3 --json --client 10.9.0.2 {how}", site.at(1));
    let (ok, text, error) = try_run(&client);
    let _ = server.kill();
    let _ = server.wait();
    assert!(ok, "{text}{error}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn kernel_stacks_talk_across_the_switch() {
    if !namespaces::available() {
        return;
    }
    let site = Site::new(2, 2);
    let path = format!("/run/netns/{}", site.at(0));
    let mut externals = site.external(1, "xdp = \"native\"\nzero_copy = \"off\"");
    let _ = write!(
        externals,
        "[[external]]\nport = \"s1:2\"\ninterface = \"e2\"\nnetns = \"{path}\"\nqueues = [0, 1]\n"
    );
    let switch = site.start(&externals, &["--busy-poll"]);
    run(&format!("ip netns exec {} ping -q -c 20 -i 0.01 -W 5 10.9.0.2", site.at(1)));
    let status =
        run(&format!("{} lab status {} --json", env!("CARGO_BIN_EXE_tailwater"), site.name));
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let port = &status[0]["status"]["ports"][1];
    assert_eq!((&port["port"], &port["mode"]), (&"s1:2".into(), &"native".into()), "{status}");
    assert_eq!((&port["zero_copy"], &port["queues"]), (&false.into(), &serde_json::json!([0, 1])));
    if try_run("iperf3 --version").0 {
        let tcp = iperf(&site, "--bytes 4M");
        let bytes = |end: &str| tcp["end"][end]["bytes"].as_u64();
        // The server stops counting when the client has handed over its last byte.
        let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
        assert!(sent >= Some(4_000_000) && received >= Some(1_000_000), "{tcp}");
        let udp = iperf(&site, "--udp --bitrate 20M --time 1");
        assert!(udp["end"]["sum"]["packets"].as_u64() > Some(100), "{udp}");
    }
    switch.interrupt();
    let report = site.report();
    assert_eq!(report["driver"], "xdp");
    assert_eq!(report["invariants"]["frames_conserved"], true, "{report}");
    assert_eq!(report["xdp"]["s1:1"]["mode"], "native");
    assert!(report["switches"]["s1"]["received"].as_u64() > Some(40));
    // Nothing of it is left: not its program, not promiscuity, not its socket.
    let link = run(&format!("ip -n {} -d link show e1", site.at(0)));
    assert!(!link.contains("xdp") && link.contains("promiscuity 0"), "{link}");
    assert!(!std::path::Path::new("/run/tailwater").join(format!("{}.json", site.name)).exists());
}

#[test]
fn the_kernel_keeps_what_is_not_steered() {
    if !namespaces::available() {
        return;
    }
    let site = Site::new(2, 1);
    run(&format!("ip -n {} addr add 10.9.0.100/24 dev e1", site.at(0)));
    let externals =
        site.external(1, "steering = [\"udp=4791\", \"ethertype=0x0806\"]") + &site.external(2, "");
    let switch = site.start(&externals, &[]);
    // ARP is steered, so each end is told where the other one is.
    for (from, to) in [(1, 2), (2, 1), (1, 100), (0, 1)] {
        let (at, dev) = if to == 100 { (0, "e1") } else { (to, "eth0") };
        let from_dev = if from == 0 { "e1" } else { "eth0" };
        let link = run(&format!("ip -n {} -j link show {dev}", site.at(at)));
        let link: serde_json::Value = serde_json::from_str(&link).expect("JSON");
        let mac = link[0]["address"].as_str().expect("an address");
        let neighbour = format!("10.9.0.{to} lladdr {mac} dev {from_dev} nud permanent");
        run(&format!("ip -n {} neigh replace {neighbour}", site.at(from)));
    }
    let here = |n, work: fn() -> UdpSocket| site.netns(n).run(work).expect("there is one");
    let receiver = here(2, || UdpSocket::bind("10.9.0.2:4791").expect("it binds"));
    receiver.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let sender = here(1, || UdpSocket::bind("10.9.0.1:0").expect("it binds"));
    sender.send_to(b"across", "10.9.0.2:4791").expect("it sends");
    let mut text = [0; 32];
    let len = receiver.recv(&mut text).expect("it arrives");
    assert_eq!(text[..len], *b"across");
    // What is for the interface's own address is the kernel's.
    let listen = || TcpListener::bind("10.9.0.100:22").expect("it binds");
    let listener = site.netns(0).run(listen).expect("there is one");
    let stream = site.netns(1).run(|| TcpStream::connect("10.9.0.100:22")).expect("there is one");
    let stream = stream.expect("it connects");
    let (accepted, peer) = listener.accept().expect("a connection");
    assert_eq!(peer.ip().to_string(), "10.9.0.1");
    drop((stream, accepted));
    // And what is for somebody else and not steered stays on this side.
    assert!(!pings(&site, 1, "10.9.0.2"), "a ping is not steered");
    switch.interrupt();
    let report = site.report();
    assert_eq!(report["xdp"]["s1:1"]["rx_frames"], 1, "{}", report["xdp"]);
}

#[test]
fn an_interface_goes_and_comes_back_and_a_tap_gets_its_carrier_late() {
    if !namespaces::available() {
        return;
    }
    let site = Site::new(2, 1);
    run(&format!("ip -n {} tuntap add dev tap0 mode tap", site.at(0)));
    run(&format!("ip -n {} link set tap0 up", site.at(0)));
    let mut externals = site.external(1, "") + &site.external(2, "");
    let _ = write!(
        externals,
        "[[external]]\nport = \"s1:3\"\ninterface = \"tap0\"\nnetns = \"{}\"\n",
        site.at(0)
    );
    let switch = site.start(&externals, &[]);
    eventually("the first ping", || pings(&site, 1, "10.9.0.2"));
    run(&format!("ip -n {} link del e2", site.at(0)));
    assert!(!pings(&site, 1, "10.9.0.2"));
    site.connect(2, 1);
    eventually("a ping over the interface that came back", || pings(&site, 1, "10.9.0.2"));
    tap_hears(&site);
    switch.interrupt();
    let report = site.report();
    assert_eq!(report["invariants"]["frames_conserved"], true, "{report}");
}

/// Opens the tap as a guest does, and waits for a broadcast of the first far end.
fn tap_hears(site: &Site) {
    const GUEST: &str = "import fcntl, os, struct, sys\n\
        tap = os.open('/dev/net/tun', os.O_RDWR)\n\
        fcntl.ioctl(tap, 0x400454ca, struct.pack('16sH14x', b'tap0', 0x1002))\n\
        print('open', flush=True)\n\
        while os.read(tap, 2048)[:6] != b'\\xff' * 6: pass\n\
        print('heard', flush=True)\n";
    if !std::path::Path::new("/dev/net/tun").exists() || !try_run("python3 --version").0 {
        println!("skipped: no /dev/net/tun or python3");
        return;
    }
    let mut guest = Command::new("ip")
        .args(["netns", "exec", &site.at(0), "python3", "-c", GUEST])
        .stdout(Stdio::piped())
        .spawn()
        .expect("ip runs");
    let mut lines = BufReader::new(guest.stdout.take().expect("piped")).lines();
    let opened = lines.next().and_then(Result::ok);
    assert_eq!(opened.as_deref(), Some("open"));
    let (told, heard) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || told.send(lines.next().and_then(Result::ok)));
    let ping = format!("ip netns exec {} ping -q -c 1 -W 1 10.9.0.77", site.at(1));
    let mut line = None;
    eventually("the guest hears", || {
        // Nobody has this address: each try asks everybody for it.
        try_run(&ping);
        line = heard.try_recv().ok();
        line.is_some()
    });
    assert_eq!(line.flatten().as_deref(), Some("heard"));
    let _ = reader.join();
    let _ = guest.wait();
}

#[test]
fn an_interface_that_the_world_is_reached_by_is_not_taken_unasked() {
    if !namespaces::available() {
        return;
    }
    let site = Site::new(1, 1);
    run(&format!("ip -n {} addr add 10.9.0.100/24 dev e1", site.at(0)));
    run(&format!("ip -n {} route add default via 10.9.0.1", site.at(0)));
    let file = site.folder.path().join("switch.toml");
    let text = format!("name = \"{}\"\n[switch.s1]\n{}", site.name, site.external(1, ""));
    std::fs::write(&file, text).expect("a file");
    let switch = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tailwater"));
        command.arg("switch").arg(&file).args(["--json", "--duration", "100ms", "--run-dir"]);
        let dir = site.folder.path().join(format!("run{}", more.len()));
        let output = command.arg(dir).args(more).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), output.stdout, error)
    };
    let (code, out, error) = switch(&[]);
    assert_eq!((code, out.len()), (Some(2), 0), "{error}");
    assert!(error.contains("s1:1") && error.contains("--allow-default-route"), "{error}");
    // Asked for, it is; and it ends by itself, with one document on stdout.
    let (code, out, error) = switch(&["--allow-default-route"]);
    assert_eq!(code, Some(0), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&out).expect("one JSON document");
    assert_eq!(report["duration_ns"], 100_000_000);
    assert!(error.lines().any(|line| line == "ready"), "{error}");
}

#[test]
fn what_cannot_be_run_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x.toml");
    let fails = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        let output = Command::new(env!("CARGO_BIN_EXE_tailwater"))
            .arg("switch")
            .arg(&file)
            .arg("--run-dir")
            .arg(folder.path().join("run"))
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let host = "name = \"x\"\n[switch.s1]\n[host.h1]\n[[link]]\nends = [\"h1:eth0\", \"s1:1\"]\n";
    assert!(fails(host).contains("tailwater lab up"));
    let ports = "name = \"x\"\n[switch.s1]\nports = 2\n";
    assert!(fails(ports).contains("[[external]]"));
    let one = "[[external]]\nport = \"s1:1\"\ninterface = \"e1\"\n";
    let twice = one.replace("s1:1", "s1:2");
    let same = format!("name = \"x\"\n[switch.s1]\n{one}{twice}");
    assert!(fails(&same).contains("this interface is a port already"));
    let route = format!("name = \"x\"\n[switch.s1]\n{one}allow_default_route = true\n");
    assert!(fails(&route).contains("--allow-default-route"));
    let wrong = format!("name = \"x\"\n[switch.s1]\n{one}steering = [\"tcp=22\"]\n");
    assert!(fails(&wrong).contains("is not ethertype=0xHHHH"));
    if namespaces::available() {
        let none = format!("name = \"tw-none\"\n[switch.s1]\n{}", one.replace("e1", "tw-none"));
        assert!(fails(&none).contains("there is no interface tw-none"));
    }
}
