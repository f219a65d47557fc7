//! A progress bar on stderr: only on a terminal, and not with `--quiet`.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::time::Duration;

/// How far a run is, in node time or in items. Without a terminal it does nothing.
#[derive(Clone, Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over `total` nanoseconds of node time.
    pub fn over_time(what: &str, total: Duration, quiet: bool) -> Self {
        Self::new(what, total.as_ns(), quiet, |ns| {
            format!("{}.{:03}s", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
        })
    }

    /// A bar over `total` items (records, frames, trials).
    pub fn over_items(what: &str, total: u64, quiet: bool) -> Self {
        Self::new(what, total, quiet, super::draw::show_count)
    }

    fn new(what: &str, total: u64, quiet: bool, show: fn(u64) -> String) -> Self {
        let hidden = quiet || !std::io::stderr().is_terminal();
        let target =
            if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        // The template is a constant that parses; without it the bar has its own default.
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {at} / {of}") {
            bar.set_style(
                style
                    .progress_chars("=> ")
                    .with_key(
                        "at",
                        move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
                            let _ = out.write_str(&show(state.pos()));
                        },
                    )
                    .with_key(
                        "of",
                        move |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
                            let _ = out.write_str(&show(state.len().unwrap_or(0)));
                        },
                    ),
            );
        }
        bar.set_message(what.to_owned());
        Self { bar }
    }

    /// The run is at `position`: nanoseconds or items.
    pub fn set(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// What the run is doing now.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Takes the bar from the screen, so that the result stands alone.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
