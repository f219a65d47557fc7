//! Help, usage, and exit codes as a user without root sees them, word for word. After a wanted
//! change, `TRYCMD=overwrite cargo test --test cli` writes them anew.

#[test]
fn the_command_line_is_as_written_down() {
    trycmd::TestCases::new().env("NO_COLOR", "1").case("tests/cli/*.trycmd");
}
