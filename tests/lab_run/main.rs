//! Labs as a user runs them: real frames between namespaces, compared with the simulator and with
//! the kernel's own stack, and under faults. Needs root and AF_XDP; says so and passes without,
//! fails without under CI.
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

#[path = "../namespaces/mod.rs"]
mod namespaces;
#[path = "../ping/mod.rs"]
mod ping;

mod ends;
mod faults;
mod gated;
mod kernel_hosts;
mod lab;
mod operator;
mod refusals;
