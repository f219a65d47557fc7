//! The `tailwater` command.

fn main() -> std::process::ExitCode {
    tailwater::cli::main()
}
