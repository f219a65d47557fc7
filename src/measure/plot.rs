//! Line charts as SVG text, to stand inside a page.

use std::fmt::Write as _;

/// One line of a chart.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, ascending in x.
    pub points: Vec<(f64, f64)>,
}

/// How an axis maps values to places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Evenly, from zero.
    Linear,
    /// By powers of ten.
    Log,
    /// Quantiles from 0 to below 1, by powers of ten of 1/(1 - q): 0 %, 90 %, 99 %, 99.9 %.
    Percentile,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Shown above it.
    pub title: String,
    /// Name and unit of x.
    pub x_label: String,
    /// Name and unit of y.
    pub y_label: String,
    /// Scale of x.
    pub x: Axis,
    /// Scale of y.
    pub y: Axis,
    /// Its lines, at most a dozen that can be told apart.
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
/// Half of a label that stands at the right end fits beside the plot.
const RIGHT: f64 = 34.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
const LEGEND_ROW: f64 = 18.0;

/// Colours that those who see few colours can tell apart (Okabe and Ito 2008).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#888888"];

/// The quantile that a percentile axis ends at when a line ends at 1.
const NINES_MAX: f64 = 6.0;

/// An axis with its range in the transformed scale.
struct Scale {
    axis: Axis,
    low: f64,
    high: f64,
}

impl Scale {
    fn of(axis: Axis, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .map(|value| transform(axis, value))
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let (low, high) = match axis {
            Axis::Linear => (0.0_f64.min(low), high),
            Axis::Log if high - low < FEW_DECADES => {
                (mark_below(low).log10(), mark_above(high).log10())
            }
            Axis::Log => (low.floor(), high.ceil()),
            Axis::Percentile => (0.0, high),
        };
        Self { axis, low, high: if high > low { high } else { low + 1.0 } }
    }

    /// Where `value` lies, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let value = transform(self.axis, value).clamp(self.low, self.high);
        (value - self.low) / (self.high - self.low)
    }

    /// Places from 0 to 1 with their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let span = self.high - self.low;
        let place = |value: f64| (value - self.low) / span;
        if self.axis == Axis::Linear {
            let step = step(span / 5.0);
            let mut ticks = Vec::new();
            let mut k = (self.low / step).ceil();
            while k * step <= self.high + span * 1e-9 {
                ticks.push((place(k * step), number(k * step)));
                k += 1.0;
            }
            return ticks;
        }
        let mut ticks = Vec::new();
        if self.axis == Axis::Log && span < FEW_DECADES {
            let mut mark = mark_below(self.low);
            while mark.log10() <= self.high + 1e-9 {
                ticks.push((place(mark.log10()), number(mark)));
                mark = mark_above((mark * 1.01).log10());
            }
            return ticks;
        }
        let mut power = self.low.ceil();
        while power <= self.high + 1e-9 {
            let label = if self.axis == Axis::Percentile {
                percent(power)
            } else {
                number(10_f64.powf(power))
            };
            ticks.push((place(power), label));
            power += 1.0;
        }
        ticks
    }
}

fn transform(axis: Axis, value: f64) -> f64 {
    match axis {
        Axis::Linear => value,
        Axis::Log => value.log10(),
        Axis::Percentile => (-(1.0 - value).log10()).min(NINES_MAX),
    }
}

/// Below this many powers of ten, a logarithmic axis is marked at 1, 2 and 5 times each.
const FEW_DECADES: f64 = 2.0;

/// The largest 1, 2 or 5 times a power of ten that is not above `10^log`.
fn mark_below(log: f64) -> f64 {
    let power = 10_f64.powf((log + 1e-9).floor());
    let value = 10_f64.powf(log + 1e-9);
    [5.0, 2.0].map(|m| m * power).into_iter().find(|mark| *mark <= value).unwrap_or(power)
}

/// The smallest 1, 2 or 5 times a power of ten that is not below `10^log`.
fn mark_above(log: f64) -> f64 {
    step(10_f64.powf(log - 1e-9))
}

/// 1, 2 or 5 times a power of ten, at least `about`.
fn step(about: f64) -> f64 {
    let power = 10_f64.powf(about.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= about).unwrap_or(power)
}

/// `0%`, `90%`, `99%`, `99.9%` for 0, 1, 2, 3 nines.
fn percent(nines: f64) -> String {
    if nines < 0.5 {
        return "0%".to_owned();
    }
    let digits = if nines > 2.5 { nines - 2.0 } else { 0.0 };
    let value = 100.0 - 100.0 * 10_f64.powf(-nines);
    let mut text = format!("{value:.6}");
    // Cut to the nines that are meant: 99.9, not 99.900000.
    let point = text.find('.').unwrap_or(text.len());
    let mut keep = point;
    let mut left = digits;
    while left > 0.5 {
        keep += if keep == point { 2 } else { 1 };
        left -= 1.0;
    }
    text.truncate(keep);
    text + "%"
}

/// A number without needless zeros.
fn number(value: f64) -> String {
    if value.abs() >= 1e6 || (value != 0.0 && value.abs() < 1e-3) {
        return format!("{value:e}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `text` with the characters that mean something in HTML and SVG replaced.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

impl Chart {
    /// The chart as one `<svg>` element. It takes its text colour from the page.
    pub fn to_svg(&self) -> String {
        let legend_columns = 4;
        let legend_rows = self.lines.len().div_ceil(legend_columns);
        let height = HEIGHT + LEGEND_ROW * rows(legend_rows);
        let (plot_width, plot_height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let values = |pick: fn(&(f64, f64)) -> f64| {
            self.lines.iter().flat_map(|line| &line.points).map(pick)
        };
        let x = Scale::of(self.x, values(|point| point.0));
        let y = Scale::of(self.y, values(|point| point.1));
        let x_at = |place: f64| LEFT + place * plot_width;
        let y_at = |place: f64| TOP + (1.0 - place) * plot_height;

        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-size=\"12\" \
             fill=\"currentColor\"><title>{title}</title>\n\
             <text x=\"{LEFT}\" y=\"18\" font-size=\"14\" font-weight=\"bold\">{title}</text>\n",
            title = escape(&self.title),
        );
        let grid = "stroke=\"currentColor\" stroke-opacity=\"0.15\"";
        for (place, label) in x.ticks() {
            let (x, bottom) = (x_at(place), TOP + plot_height);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {TOP}V{bottom}\" {grid}/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                bottom + 16.0
            );
        }
        for (place, label) in y.ticks() {
            let (y, right) = (y_at(place), LEFT + plot_width);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" {grid}/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            LEFT + plot_width / 2.0,
            HEIGHT - 12.0,
            escape(&self.x_label),
            TOP + plot_height / 2.0,
            escape(&self.y_label)
        );
        for (i, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let mut path = String::new();
            for point in &line.points {
                let letter = if path.is_empty() { 'M' } else { 'L' };
                let (x, y) = (x_at(x.place(point.0)), y_at(y.place(point.1)));
                let _ = write!(path, "{letter}{x:.1} {y:.1}");
            }
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
            );
            let column = rows(i % legend_columns) * plot_width / rows(legend_columns);
            let y = HEIGHT + LEGEND_ROW * rows(i / legend_columns) + 4.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{:.1} {:.1}h16\" stroke=\"{colour}\" stroke-width=\"3\"/>\
                 <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                LEFT + column,
                y - 4.0,
                LEFT + column + 22.0,
                escape(&line.name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

#[allow(clippy::cast_precision_loss, reason = "a handful of rows or columns")]
const fn rows(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        Chart {
            title: "a < b".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            x: Axis::Percentile,
            y: Axis::Log,
            lines: vec![Line { name: "l&1".to_owned(), points }],
        }
    }

    #[test]
    fn labels_of_the_axes_are_those_people_know() {
        let nines: Vec<String> = [0.0, 1.0, 2.0, 3.0, 5.0].map(percent).to_vec();
        assert_eq!(nines, ["0%", "90%", "99%", "99.9%", "99.999%"]);
        let scale = Scale::of(Axis::Linear, [0.0, 47.0].into_iter());
        let labels: Vec<String> = scale.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(labels, ["0", "10", "20", "30", "40"]);
        let scale = Scale::of(Axis::Log, [3.0, 900.0].into_iter());
        let labels: Vec<String> = scale.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(labels, ["1", "10", "100", "1000"]);
        let scale = Scale::of(Axis::Log, [2.4, 62.0].into_iter());
        let labels: Vec<String> = scale.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(labels, ["2", "5", "10", "20", "50", "100"]);
        let scale = Scale::of(Axis::Log, [5.0, 5.0].into_iter());
        assert!(scale.ticks().iter().all(|(place, _)| (0.0..=1.0).contains(place)));
    }

    #[test]
    fn odd_data_still_gives_finite_places_and_escaped_text() {
        for points in
            [vec![], vec![(0.5, 1.0)], vec![(0.0, 0.0), (1.0, 5.0)], vec![(0.0, 3.0), (0.9, 3.0)]]
        {
            let svg = chart(points).to_svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains("a &lt; b") && svg.contains("l&amp;1"), "{svg}");
        }
    }
}
