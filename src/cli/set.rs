//! `tailwater set`: changes a running instance.

use clap::Args;

use super::Failure;
use super::lab::name_of;
use super::outcome::print;
use crate::lab::control::{Request, ask};

/// Arguments of `tailwater set`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tailwater set two-hosts links.h1:eth0-s1:1.loss=1%")]
pub struct SetArgs {
    /// The instance's name, or its topology file
    target: String,
    /// What to change, such as links.h1:eth0-s1:1.loss=1%
    #[arg(required = true, value_name = "PATH=VALUE", value_parser = assignment)]
    assignments: Vec<(String, String)>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((path, value)) if !path.trim().is_empty() && !value.trim().is_empty() => {
            Ok((path.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("is not PATH=VALUE".to_owned()),
    }
}

impl SetArgs {
    /// Sets one after the other and prints what each is now; ends at the first that is refused.
    ///
    /// # Errors
    /// When no such instance runs, or it refuses.
    pub fn run(&self) -> Result<(), Failure> {
        let name = name_of(&self.target)?;
        for (path, value) in &self.assignments {
            let request = Request::Set { path: path.clone(), value: value.clone() };
            let now = ask(&name, &request)?;
            print(&format!("{path} = {}\n", super::show::plain(&now)))?;
        }
        Ok(())
    }
}
