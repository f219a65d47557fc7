//! `tailwater show`: the counters of a running instance, once.

use clap::Args;
use serde_json::Value;

use super::Failure;
use super::lab::name_of;
use super::outcome::print;
use crate::lab::control::{Request, ask};

/// Arguments of `tailwater show`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tailwater show two-hosts\n  tailwater show two-hosts switches.s1 --json"
)]
pub struct ShowArgs {
    /// The instance's name, or its topology file
    target: String,
    /// Only what lies below this path, such as `switches.s1`
    path: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Counters that are zero too
    #[arg(long)]
    all: bool,
}

impl ShowArgs {
    /// Asks and prints.
    ///
    /// # Errors
    /// When no such instance runs.
    pub fn run(&self) -> Result<(), Failure> {
        let shown = ask(&name_of(&self.target)?, &Request::Show)?;
        let mut below = &shown;
        for step in self.path.iter().flat_map(|path| path.split('.')) {
            below = below.get(step).ok_or_else(|| {
                let known: Vec<&str> =
                    below.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
                Failure::Usage(format!("there is no `{step}` here; there is {}", known.join(", ")))
            })?;
        }
        if self.json {
            return print(&format!("{below:#}\n"));
        }
        let mut lines = Vec::new();
        flatten(below, self.path.as_deref().unwrap_or_default(), self.all, &mut lines);
        let wide = lines.iter().map(|(path, _)| path.chars().count()).max().unwrap_or(0);
        let text: String =
            lines.iter().map(|(path, value)| format!("{path:<wide$}  {value}\n")).collect();
        print(&text)
    }
}

/// A value as people read it: text without quotes.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Every leaf with its path; arrays of plain values stay on one line.
fn flatten(value: &Value, at: &str, all: bool, lines: &mut Vec<(String, String)>) {
    let below = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
    let zero = |value: &Value| value.as_u64() == Some(0);
    match value {
        Value::Object(members) => {
            for (key, inner) in members {
                flatten(inner, &below(key), all, lines);
            }
        }
        Value::Array(elements) if elements.iter().any(|e| e.is_object() || e.is_array()) => {
            for (index, inner) in elements.iter().enumerate() {
                flatten(inner, &format!("{at}[{index}]"), all, lines);
            }
        }
        Value::Array(elements) => {
            if all || !elements.iter().all(zero) {
                let shown: Vec<String> = elements.iter().map(plain).collect();
                lines.push((at.to_owned(), shown.join(" ")));
            }
        }
        leaf => {
            if all || !zero(leaf) {
                lines.push((at.to_owned(), plain(leaf)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn leaves_have_paths_and_zeros_are_left_out() {
        let value = json!({ "a": { "b": 1, "c": 0 }, "d": [0, 2], "e": [{ "f": "x" }], "g": [0] });
        let mut lines = Vec::new();
        flatten(&value, "", false, &mut lines);
        let shown: Vec<String> = lines.iter().map(|(path, v)| format!("{path}={v}")).collect();
        assert_eq!(shown, ["a.b=1", "d=0 2", "e[0].f=x"]);
    }
}
