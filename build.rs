//! Compiles the steering program and generates its skeleton.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "bpf/steer.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // <asm/types.h> of a multi-arch distribution lies under the target's directory, which clang
    // does not search when it compiles for the BPF machine.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target's architecture");
    let env_abi = env::var("CARGO_CFG_TARGET_ENV").unwrap_or_default();
    let multiarch = format!("-I/usr/include/{arch}-linux-{env_abi}");
    if let Err(error) = SkeletonBuilder::new()
        .source(SOURCE)
        .clang_args([multiarch.as_str(), "-Wall", "-Werror"])
        .build_and_generate(out.join("steer.skel.rs"))
    {
        panic!(
            "cannot compile {SOURCE}: {error:#}\n\
             it needs clang and the kernel's headers: apt-get install clang linux-libc-dev"
        );
    }
}
