//! What a lab says, and with which exit code, when it cannot run or did not hold.

use std::process::{Command, Stdio};

use crate::lab::{Lab, stderr};
use crate::namespaces;

#[test]
fn an_expectation_that_does_not_hold_is_exit_code_3() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::testbed("stream", &[("frames = 20000", "frames = 10")]);
    for command in [&["sim"][..], &["lab", "run"]] {
        let output = lab.run(command, command[0], &[], 3);
        assert!(
            stderr(&output).contains("did not hold: latency_ns.count == 20000"),
            "{}",
            stderr(&output)
        );
    }
    lab.assert_gone();
}

/// Runs `lab run` under `setpriv` or `prlimit` with these arguments.
fn run_under(lab: &Lab, wrapper: &[&str]) -> (Option<i32>, String) {
    let run = lab.command(&["lab", "run"], "refused", &[]);
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(run.get_program()).args(run.get_args());
    let output = command.stdin(Stdio::null()).output().expect("util-linux is there");
    (output.status.code(), stderr(&output))
}

#[test]
fn what_this_machine_does_not_allow_is_exit_code_4_and_leaves_nothing() {
    if !namespaces::available() {
        return;
    }
    let lab = Lab::testbed("stream", &[]);
    let (code, why) = run_under(&lab, &["setpriv", "--bounding-set", "-all"]);
    assert_eq!(code, Some(4), "{why}");
    assert!(why.contains("sudo") && why.contains("tailwater sim"), "{why}");
    assert!(!lab.dir("refused").exists(), "refused before anything was made");
    lab.assert_gone();

    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let reachable = Command::new(nobody[0])
        .args(&nobody[1..])
        .args([env!("CARGO_BIN_EXE_tailwater"), "--version"])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    // Where the build lies in a folder of root's own, nobody cannot even start it.
    if reachable {
        std::fs::set_permissions(
            lab.file().parent().expect("a folder"),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .expect("ours");
        let (code, why) = run_under(&lab, &nobody);
        assert_eq!(code, Some(4), "{why}");
        assert!(why.contains("sudo"), "{why}");
    } else {
        println!("not tried as another user: the build is not readable for nobody");
    }

    let little = ["prlimit", "--memlock=65536", "setpriv", "--bounding-set", "-ipc_lock"];
    let (code, why) = run_under(&lab, &little);
    assert_eq!(code, Some(4), "{why}");
    assert!(why.contains("ulimit -l unlimited"), "{why}");
    assert!(!lab.dir("refused").exists(), "no results of a run that never began");
    lab.assert_gone();
}

#[test]
fn mistakes_in_the_file_are_exit_code_2_with_the_place() {
    let cases = [
        ("[switch.s1]\nbufer = \"1MB\"\n", ":3:1]", "did you mean `buffer`?"),
        ("[switch.s1]\nbuffer = \"1Mbps\"\n", ":3:10]", "1Mbps"),
        (
            "[switch.s1]\nports = 2\n[host.h1]\n[[link]]\nends = [\"h1:eth0\", \"s1:3\"]\n",
            ":6:20]",
            "no port `3`",
        ),
        ("[switch.a]\n[host.a]\n[[link]]\nends = [\"a:1\", \"a:eth0\"]\n", ":3:", "called `a`"),
        ("[switch.s1]\n[[fault]]\nat = \"1ms\"\nlink = \"s1:1\"\ndown = true\n", ":5:", "s1:1"),
    ];
    for (text, place, why) in cases {
        let lab = Lab::new(text);
        for command in [&["lab", "check"][..], &["sim"], &["lab", "run"]] {
            let mut run = crate::lab::tailwater(command);
            let output = run.arg(lab.file()).output().expect("it runs");
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{command:?} {text}: {said}");
            assert!(said.contains(place) && said.contains(why), "{command:?}: {said}");
            assert!(said.contains('^') || said.contains("---"), "a mark at the place: {said}");
        }
    }
}
