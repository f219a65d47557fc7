//! Compiles the steering program, without and with the driver's time stamps.

use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "bpf/steer.bpf.c";
const HARDWARE: &str = "-DHARDWARE_STAMPS";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // <asm/types.h> of a multi-arch distribution lies under the target's directory, which clang
    // does not search when it compiles for the BPF machine.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target's architecture");
    let env_abi = env::var("CARGO_CFG_TARGET_ENV").unwrap_or_default();
    let multiarch = format!("-I/usr/include/{arch}-linux-{env_abi}");
    for (object, define) in [("steer.bpf.o", None), ("steer_hardware.bpf.o", Some(HARDWARE))] {
        let arguments = [multiarch.as_str(), "-Wall", "-Werror"].into_iter().chain(define);
        if let Err(error) = SkeletonBuilder::new()
            .source(SOURCE)
            .obj(out.join(object))
            .clang_args(arguments)
            .build()
        {
            panic!(
                "cannot compile {SOURCE}: {error:#}\n\
                 it needs clang and the kernel's headers: apt-get install clang linux-libc-dev"
            );
        }
    }
}
