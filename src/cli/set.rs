//! `tailwater set`: changes a running instance.

use clap::Args;
use serde_json::Value;

use super::Failure;
use super::lab::name_of;
use super::outcome::print;
use crate::lab::control::{Request, ask};
use crate::lab::settings::settable;

/// Arguments of `tailwater set`.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct SetArgs {
    /// The instance's name, or its topology file
    target: String,
    /// What to change, such as links.h1:eth0-s1:1.loss=1%
    #[arg(required = true, value_name = "PATH=VALUE", value_parser = assignment)]
    assignments: Vec<(String, String)>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn help() -> String {
    format!(
        "Paths:\n{}\n\nExamples:\n  \
         tailwater set two-hosts links.h1:eth0-s1:1.loss=1%\n  \
         tailwater set two-hosts switches.s1.ports.1.queue_limit=64KB switches.s1.mac_table=flush",
        settable()
    )
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
    /// When no such instance runs, or it refuses: [`Failure::Usage`] for a path or a value that it
    /// does not have.
    pub fn run(&self) -> Result<(), Failure> {
        let name = name_of(&self.target)?;
        let mut done = Vec::new();
        let mut refused = Ok(());
        for (path, value) in &self.assignments {
            let request = Request::Set { path: path.clone(), value: value.clone() };
            match ask(&name, &request) {
                Ok(_) if !self.json => print(&format!("{path} = {value}\n"))?,
                Ok(now) => done.push(now),
                Err(failure) => {
                    refused = Err(failure);
                    break;
                }
            }
        }
        if self.json {
            print(&format!("{:#}\n", Value::Array(done)))?;
        }
        refused
    }
}
