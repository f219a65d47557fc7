//! `tailwater man`: one manual page with a section for each subcommand.

use std::io;

use clap::Command;
use clap_mangen::Man;

use super::Failure;

/// The page, in roff.
///
/// # Errors
/// [`Failure::Running`] when it cannot be rendered.
pub(super) fn page(command: Command) -> Result<String, Failure> {
    let mut command = command;
    command.build();
    let mut out = Vec::new();
    render(&command, &mut out)
        .map_err(|error| Failure::Running(format!("cannot render the manual page: {error}")))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn render(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    Man::new(command.clone()).render(out)?;
    sections(command, "tailwater", out)
}

fn sections(command: &Command, path: &str, out: &mut Vec<u8>) -> io::Result<()> {
    use io::Write as _;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        let name = format!("{path} {}", inner.get_name());
        writeln!(out, ".SH \"{}\"", name.to_uppercase())?;
        let man = Man::new(inner.clone().bin_name(&name));
        let mut body = Vec::new();
        man.render_synopsis_section(&mut body)?;
        man.render_description_section(&mut body)?;
        if inner.get_arguments().any(|argument| !argument.is_hide_set()) {
            man.render_options_section(&mut body)?;
        }
        for line in String::from_utf8_lossy(&body).lines() {
            // Within a command's section, synopsis and options are one level down.
            writeln!(out, "{}", line.replacen(".SH ", ".SS ", 1))?;
        }
        if let Some(more) = inner.get_after_help() {
            writeln!(out, ".PP\n.nf")?;
            for line in more.to_string().lines() {
                writeln!(out, "\\&{}", line.replace('\\', "\\\\").replace('-', "\\-"))?;
            }
            writeln!(out, ".fi")?;
        }
        sections(inner, &name, out)?;
    }
    Ok(())
}
