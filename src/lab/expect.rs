//! Expectations: a path into `report.json`, an aggregate over what it finds, and a comparison.
//!
//! `switches.s1.drops.total` names one value; `flows[].slowdown` one per element of an array and
//! `switches.*.drops.total` one per member of an object. Behind `|` stands an aggregate (`sum`,
//! `min`, `max`, `mean`, `count`, `p50`, `p90`, `p99`, `p999`, `jain`); without one, every value
//! found must hold, and at least one must be found.

use std::fmt;

use serde_json::Value;

/// What a value is held against.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    path: Vec<Step>,
    aggregate: Option<Aggregate>,
    comparison: Comparison,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A member of an object.
    Member(String),
    /// Every member of an object.
    EveryMember,
    /// Every element of an array.
    EveryElement,
    /// One element of an array.
    Element(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
    Mean,
    Count,
    /// In thousandths of a percent.
    Percentile(u32),
    Jain,
}

const AGGREGATES: [(&str, Aggregate); 11] = [
    ("sum", Aggregate::Sum),
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
    ("mean", Aggregate::Mean),
    ("count", Aggregate::Count),
    ("p50", Aggregate::Percentile(50_000)),
    ("p90", Aggregate::Percentile(90_000)),
    ("p99", Aggregate::Percentile(99_000)),
    ("p999", Aggregate::Percentile(99_900)),
    ("p9999", Aggregate::Percentile(99_990)),
    ("jain", Aggregate::Jain),
];

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    operator: Operator,
    operand: Operand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longer spellings first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Integer(i128),
    Real(f64),
    Truth(bool),
    Word(String),
}

/// Which of the two texts of an expectation cannot be understood, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpectError {
    /// True when it is the comparison (`is`), false when it is the path (`value`).
    pub in_comparison: bool,
    /// The byte of that text where it stops making sense.
    pub offset: usize,
    /// What is wrong.
    pub message: String,
}

/// How an expectation came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The expectation as text.
    pub expr: String,
    /// What was found: one value, or an array of them.
    pub value: Value,
    /// Whether it held.
    pub held: bool,
    /// Why it did not, when there is more to say than the value.
    pub reason: Option<String>,
}

impl Expectation {
    /// Reads an expectation from its two texts.
    ///
    /// # Errors
    /// With the text and the byte in it that cannot be understood.
    pub fn parse(value: &str, is: &str) -> Result<Self, ExpectError> {
        let (path, aggregate) = match value.split_once('|') {
            Some((path, name)) => (path, Some(parse_aggregate(name, path.len() + 1)?)),
            None => (value, None),
        };
        Ok(Self {
            path: parse_path(path)?,
            aggregate,
            comparison: parse_comparison(is)?,
            text: format!("{} {}", value.trim(), is.trim()),
        })
    }

    /// Holds the expectation against a report.
    pub fn evaluate(&self, report: &Value) -> Outcome {
        let outcome =
            |value, held, reason| Outcome { expr: self.text.clone(), value, held, reason };
        let mut found = Vec::new();
        if let Err(reason) = walk(report, &self.path, String::new(), &mut found) {
            return outcome(Value::Null, false, Some(reason));
        }
        if let Some(aggregate) = self.aggregate {
            return match aggregate.of(&found) {
                Ok(value) => {
                    let held = self.comparison.holds(&value);
                    outcome(value, held, None)
                }
                Err(reason) => outcome(Value::Null, false, Some(reason)),
            };
        }
        let held = !found.is_empty() && found.iter().all(|value| self.comparison.holds(value));
        let reason = found.is_empty().then(|| "the path finds no value".to_owned());
        let value = match found.as_slice() {
            [one] => (*one).clone(),
            many => Value::Array(many.iter().map(|value| (*value).clone()).collect()),
        };
        outcome(value, held, reason)
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn path_error(offset: usize, message: impl Into<String>) -> ExpectError {
    ExpectError { in_comparison: false, offset, message: message.into() }
}

fn parse_path(text: &str) -> Result<Vec<Step>, ExpectError> {
    let mut steps = Vec::new();
    let mut offset = text.len() - text.trim_start().len();
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(path_error(0, "an expectation needs a path into report.json"));
    }
    for part in trimmed.split('.') {
        let (name, mut brackets) = part.split_at(part.find('[').unwrap_or(part.len()));
        match name {
            "" => return Err(path_error(offset, "a step of the path is empty")),
            "*" => steps.push(Step::EveryMember),
            _ if name.contains([' ', ']', '"']) => {
                return Err(path_error(offset, format!("`{name}` is not a name in a path")));
            }
            _ => steps.push(Step::Member(name.to_owned())),
        }
        while !brackets.is_empty() {
            let at = offset + part.len() - brackets.len();
            let inner = brackets
                .strip_prefix('[')
                .and_then(|rest| rest.split_once(']'))
                .ok_or_else(|| path_error(at, "expected `[]` or an index such as `[0]`"))?;
            steps.push(match inner.0 {
                "" => Step::EveryElement,
                index => Step::Element(index.parse().map_err(|_| {
                    path_error(at + 1, format!("`{index}` is not an index into an array"))
                })?),
            });
            brackets = inner.1;
        }
        offset += part.len() + 1;
    }
    Ok(steps)
}

fn parse_aggregate(text: &str, offset: usize) -> Result<Aggregate, ExpectError> {
    let name = text.trim();
    let at = offset + text.len() - text.trim_start().len();
    AGGREGATES.iter().find(|(known, _)| *known == name).map(|(_, aggregate)| *aggregate).ok_or_else(
        || {
            let known: Vec<&str> = AGGREGATES.iter().map(|(known, _)| *known).collect();
            path_error(at, format!("`{name}` is not an aggregate: one of {}", known.join(", ")))
        },
    )
}

fn parse_comparison(text: &str) -> Result<Comparison, ExpectError> {
    let error = |offset, message: String| ExpectError { in_comparison: true, offset, message };
    let start = text.len() - text.trim_start().len();
    let trimmed = text.trim();
    let found = OPERATORS.iter().find(|(spelling, _)| trimmed.starts_with(spelling));
    let (operator, rest) = match found {
        Some((spelling, operator)) => (*operator, &trimmed[spelling.len()..]),
        // A bare word is what the value must equal: `is = "true"`.
        None => (Operator::Equal, trimmed),
    };
    let word = rest.trim();
    let at = start + trimmed.len() - rest.trim_start().len();
    if word.is_empty() {
        return Err(error(at, "a comparison needs a value, like `== 0` or `true`".to_owned()));
    }
    let digits: String = word.chars().filter(|c| *c != '_').collect();
    let operand = if let Ok(integer) = digits.parse() {
        Operand::Integer(integer)
    } else if let Some(real) = digits.parse().ok().filter(|real: &f64| real.is_finite()) {
        Operand::Real(real)
    } else if let Ok(truth) = word.parse() {
        Operand::Truth(truth)
    } else if word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-:".contains(c))
    {
        Operand::Word(word.to_owned())
    } else {
        return Err(error(at, format!("`{word}` is not a number, true, false or a word")));
    };
    let ordered = !matches!(operator, Operator::Equal | Operator::NotEqual);
    if ordered && matches!(operand, Operand::Truth(_) | Operand::Word(_)) {
        return Err(error(at, format!("`{word}` has no order: use == or !=")));
    }
    Ok(Comparison { operator, operand })
}

/// Collects what `path` finds below `value`; says where it leads nowhere.
fn walk<'a>(
    value: &'a Value,
    path: &[Step],
    at: String,
    found: &mut Vec<&'a Value>,
) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        found.push(value);
        return Ok(());
    };
    let place = if at.is_empty() { "the report" } else { &at };
    let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    match (step, value) {
        (Step::Member(name), Value::Object(members)) => match members.get(name) {
            Some(inner) => walk(inner, rest, below(name), found),
            None => {
                let mut known: Vec<&str> = members.keys().map(String::as_str).take(12).collect();
                if members.len() > known.len() {
                    known.push("…");
                }
                Err(format!("{place} has no `{name}`; it has {}", known.join(", ")))
            }
        },
        (Step::EveryMember, Value::Object(members)) => {
            members.iter().try_for_each(|(name, inner)| walk(inner, rest, below(name), found))
        }
        (Step::EveryElement, Value::Array(elements)) => (0_usize..)
            .zip(elements)
            .try_for_each(|(index, inner)| walk(inner, rest, format!("{at}[{index}]"), found)),
        (Step::Element(index), Value::Array(elements)) => match elements.get(*index) {
            Some(inner) => walk(inner, rest, format!("{at}[{index}]"), found),
            None => Err(format!("{place} has {} elements, no [{index}]", elements.len())),
        },
        (Step::Member(_) | Step::EveryMember, _) => Err(format!("{place} is not an object")),
        (Step::EveryElement | Step::Element(_), _) => Err(format!("{place} is not an array")),
    }
}

fn integer(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

#[allow(clippy::cast_precision_loss, reason = "means and quotients of counters are approximate")]
const fn real(value: i128) -> f64 {
    value as f64
}

#[allow(clippy::cast_precision_loss, reason = "the number of values is far below 2^53")]
const fn count(values: usize) -> f64 {
    values as f64
}

impl Aggregate {
    fn of(self, found: &[&Value]) -> Result<Value, String> {
        if self == Self::Count {
            return Ok(Value::from(found.len()));
        }
        if found.is_empty() && self == Self::Sum {
            return Ok(Value::from(0));
        }
        if found.is_empty() {
            return Err("the path finds no value".to_owned());
        }
        let integers: Option<Vec<i128>> = found.iter().map(|value| integer(value)).collect();
        if let (Some(mut integers), true) = (integers, self.is_exact()) {
            integers.sort_unstable();
            let picked = match self {
                Self::Sum => integers.iter().sum(),
                other => integers[other.rank(integers.len())],
            };
            return Ok(
                i64::try_from(picked).map_or_else(|_| Value::from(real(picked)), Value::from)
            );
        }
        let reals: Option<Vec<f64>> = found.iter().map(|value| value.as_f64()).collect();
        let mut reals =
            reals.ok_or_else(|| "the path finds values that are not numbers".to_owned())?;
        reals.sort_by(f64::total_cmp);
        let sum: f64 = reals.iter().sum();
        Ok(Value::from(match self {
            Self::Sum => sum,
            Self::Mean => sum / count(reals.len()),
            Self::Jain => {
                let squares: f64 = reals.iter().map(|x| x * x).sum();
                // All zero is as fair as all equal.
                if squares == 0.0 { 1.0 } else { sum * sum / (count(reals.len()) * squares) }
            }
            other => reals[other.rank(reals.len())],
        }))
    }

    /// Whether the aggregate of integers is an integer.
    const fn is_exact(self) -> bool {
        !matches!(self, Self::Mean | Self::Jain)
    }

    /// The place in ascending order that a rank-like aggregate picks: nearest rank for percentiles.
    fn rank(self, values: usize) -> usize {
        match self {
            Self::Max => values - 1,
            Self::Percentile(millipercent) => {
                let per = usize::try_from(millipercent).unwrap_or(100_000);
                (values.saturating_mul(per)).div_ceil(100_000).max(1) - 1
            }
            _ => 0,
        }
    }
}

impl Comparison {
    fn holds(&self, value: &Value) -> bool {
        use std::cmp::Ordering;
        let order = match &self.operand {
            Operand::Truth(truth) => value.as_bool().map(|found| found.cmp(truth)),
            Operand::Word(word) => value.as_str().map(|found| found.cmp(word)),
            Operand::Integer(wanted) => match integer(value) {
                Some(found) => Some(found.cmp(wanted)),
                None => value.as_f64().and_then(|found| found.partial_cmp(&real(*wanted))),
            },
            Operand::Real(wanted) => value.as_f64().and_then(|found| found.partial_cmp(wanted)),
        };
        // A value of another kind than the operand equals nothing, and that never holds.
        order.is_some_and(|order| match self.operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => order != Ordering::Greater,
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome(value: &str, is: &str) -> Outcome {
        let report = json!({
            "clock": "gated",
            "switches": { "s1": { "drops": { "total": 0 } }, "s2": { "drops": { "total": 3 } } },
            "flows": [
                { "slowdown": 1.0, "bytes": 10, "verified": true },
                { "slowdown": 3.0, "bytes": 30, "verified": true },
            ],
            "empty": [],
            "big": u64::MAX,
        });
        Expectation::parse(value, is).expect("parses").evaluate(&report)
    }

    #[test]
    fn paths_aggregates_and_comparisons() {
        for (value, is, held) in [
            ("switches.s1.drops.total", "== 0", true),
            ("switches.s2.drops.total", "== 0", false),
            ("switches.*.drops.total", "<= 3", true),
            ("switches.*.drops.total", "== 0", false),
            ("switches.*.drops.total | sum", "== 3", true),
            ("flows[].verified", "true", true),
            ("flows[0].verified", "!= true", false),
            ("flows[].slowdown | max", "< 3.5", true),
            ("flows[].slowdown | mean", "== 2", true),
            ("flows[].slowdown | p50", "== 1", true),
            ("flows[].slowdown | p99", "== 3.0", true),
            ("flows[].bytes | jain", "== 0.8", true),
            ("flows[].bytes|min", ">= 10", true),
            ("empty[] | count", "== 0", true),
            ("empty[] | sum", "== 0", true),
            ("empty[]", "== 0", false),
            ("empty[] | p99", "== 0", false),
            ("clock", "gated", true),
            ("clock", "== 0", false),
            ("clock", "!= 0", false),
            ("big", "== 18_446_744_073_709_551_615", true),
            ("big", "> 18446744073709551614", true),
        ] {
            assert_eq!(outcome(value, is).held, held, "{value} {is}");
        }
    }

    #[test]
    fn a_path_that_leads_nowhere_says_where() {
        let reason = |value| outcome(value, "== 0").reason.expect("a reason");
        assert_eq!(reason("switches.s3.drops"), "switches has no `s3`; it has s1, s2");
        assert_eq!(reason("flows.slowdown"), "flows is not an object");
        assert_eq!(reason("clock[]"), "clock is not an array");
        assert_eq!(reason("flows[7].bytes"), "flows has 2 elements, no [7]");
        assert_eq!(reason("switches.*.drops | sum"), "the path finds values that are not numbers");
    }

    #[test]
    fn what_cannot_be_understood_is_pointed_at() {
        for (value, is, in_comparison, offset) in [
            ("", "== 0", false, 0),
            ("a..b", "== 0", false, 2),
            ("a.b[x]", "== 0", false, 4),
            ("a.b[1", "== 0", false, 3),
            ("a | median", "== 0", false, 4),
            ("a", "", true, 0),
            ("a", "==", true, 2),
            ("a", "== 1us!", true, 3),
            ("a", "< true", true, 2),
        ] {
            let error = Expectation::parse(value, is).expect_err(value);
            assert_eq!(
                (error.in_comparison, error.offset),
                (in_comparison, offset),
                "{value} {is}"
            );
        }
    }
}
