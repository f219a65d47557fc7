//! Forwarding over AF_XDP on veth pairs: our switch as a lab runs it beside a bare forwarder, for
//! the drain of a full ring, the delivered rate and the latency. `scripts/bench-forward` makes the
//! pairs, brings the other forwarders (testpmd, the Linux bridge) and prints the tables.

#![allow(clippy::print_stdout, reason = "a bench prints its result")]

mod drain;
mod forwarder;
mod load;
mod testbed;

use std::error::Error;

use forwarder::Kind;

const USAGE: &str = "usage: forward drain HOST-NETNS SWITCH-NETNS REPEATS
       forward run bare|switch SWITCH-NETNS SECONDS
       forward rate HOST-NETNS SECONDS
       forward latency HOST-NETNS SECONDS PPS";

/// The core that forwards, and the one that sends and counts.
const FORWARDING_CORE: usize = 0;
const LOADING_CORE: usize = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        // `cargo test --benches` runs this without arguments and without a network.
        [] => Ok(()),
        ["drain", host, switch, repeats] => {
            testbed::pin(FORWARDING_CORE)?;
            drain::run(host, switch, repeats.parse()?)
        }
        ["run", kind, switch, seconds] => {
            testbed::pin(FORWARDING_CORE)?;
            forwarder::run(kind.parse::<Kind>()?, switch, seconds.parse()?)
        }
        ["rate", host, seconds] => {
            testbed::pin(LOADING_CORE)?;
            load::rate(host, seconds.parse()?)
        }
        ["latency", host, seconds, pps] => {
            testbed::pin(LOADING_CORE)?;
            load::latency(host, seconds.parse()?, pps.parse()?)
        }
        _ => Err(USAGE.into()),
    }
}
