//! Errors that point into the topology file: file, line, column and a caret.

use std::fmt;
use std::io::IsTerminal as _;
use std::ops::Range;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report,
};

use crate::cli::Failure;

/// One thing that is wrong in a file, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// What is wrong.
    pub message: String,
    /// What stands under the caret.
    pub label: String,
    /// Bytes of the file that the caret points at.
    pub span: Range<usize>,
    /// A second place that belongs to it, such as the first use of a port, with its label.
    pub other: Option<(Range<usize>, String)>,
    /// How to mend it.
    pub help: Option<String>,
}

impl Issue {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { message: message.into(), label: "here".to_owned(), span, other: None, help: None }
    }

    pub(super) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    pub(super) fn other(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.other = Some((span, label.into()));
        self
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Everything that is wrong in one topology file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyError {
    /// The file's name as the user gave it.
    pub file: String,
    /// Its text.
    pub text: String,
    /// What is wrong, at least one thing, in the order of the file.
    pub issues: Vec<Issue>,
}

impl TopologyError {
    /// The errors with their places drawn: in ASCII and without colour, or with line-drawing
    /// characters, coloured when `colour`.
    pub fn render(&self, drawn: bool, colour: bool) -> String {
        let theme = match (drawn, colour) {
            (true, true) => GraphicalTheme::unicode(),
            (true, false) => GraphicalTheme::unicode_nocolor(),
            (false, _) => GraphicalTheme::none(),
        };
        let handler = GraphicalReportHandler::new_themed(theme).with_width(100).with_links(false);
        let mut out = String::new();
        for issue in &self.issues {
            let mut labels = vec![LabeledSpan::new_primary_with_span(
                Some(issue.label.clone()),
                issue.span.clone(),
            )];
            if let Some((span, label)) = &issue.other {
                labels.push(LabeledSpan::new_with_span(Some(label.clone()), span.clone()));
            }
            let mut diagnostic = MietteDiagnostic::new(issue.message.clone()).with_labels(labels);
            diagnostic.help.clone_from(&issue.help);
            let report = Report::new(diagnostic)
                .with_source_code(NamedSource::new(&self.file, self.text.clone()));
            if handler.render_report(&mut out, report.as_ref()).is_err() {
                // Only a span outside the text could fail to render; the message still counts.
                out.push_str(&format!("{}: {}\n", self.file, issue.message));
            }
        }
        out.truncate(out.trim_end().len());
        out
    }
}

impl fmt::Display for TopologyError {
    /// Drawn for a terminal on stderr, in ASCII elsewhere; `NO_COLOR` is honoured.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terminal = std::io::stderr().is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        f.write_str(&self.render(terminal, colour))
    }
}

impl std::error::Error for TopologyError {}

impl From<TopologyError> for Failure {
    fn from(error: TopologyError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// The keys that issues of later releases bring, or that are flags, with what to do instead.
const LATER: [(&str, &str); 4] = [
    ("flow", "flows (RoCE, MRC) come with a later release; use [[stream]] for paced UDP frames"),
    ("workload", "workloads come with a later release; list [[stream]] tables instead"),
    (
        "allow_default_route",
        "no file may cut a machine off; who starts it gives --allow-default-route",
    ),
    ("slow", "slowed links come with a later release; use loss, delay, jitter, down or up"),
];

/// A TOML or type error as an issue, with a suggestion when a key is unknown.
pub(super) fn from_toml(error: &toml::de::Error, text: &str) -> Issue {
    let message = error.message().trim().to_owned();
    let span = first_line(error.span().unwrap_or(0..0), text);
    if let Some((key, known)) = unknown_key(&message) {
        let later = LATER.iter().find(|(name, _)| *name == key).map(|(_, help)| (*help).to_owned());
        let near = known
            .iter()
            .map(|candidate| (distance(&key, candidate), candidate))
            .filter(|(far, candidate)| *far <= 1 + candidate.len() / 4)
            .min();
        let help = later.unwrap_or_else(|| match near {
            Some((_, candidate)) => format!("did you mean `{candidate}`?"),
            None => format!("known here: {}", known.join(", ")),
        });
        return Issue::new(span, format!("unknown key `{key}`")).label("not a key").help(help);
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return Issue::new(span, format!("missing key {field}"));
    }
    let short = message.lines().next().unwrap_or("not TOML").to_owned();
    Issue::new(span, short).label(message.lines().nth(1).unwrap_or("here").trim().to_owned())
}

/// The key and the known keys in serde's message for a field that a struct does not have.
fn unknown_key(message: &str) -> Option<(String, Vec<String>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, known) = rest.split_once('`')?;
    let known = known.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Some((key.to_owned(), known))
}

/// Cuts a span that covers a whole table to its first line, so that the caret points at one place.
fn first_line(span: Range<usize>, text: &str) -> Range<usize> {
    let start = span.start.min(text.len());
    let end = span.end.clamp(start, text.len());
    match text.get(start..end).and_then(|covered| covered.find('\n')) {
        Some(at) => start..start + at,
        None => start..end,
    }
}

/// Edits (insert, delete, replace) between two short words.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}
