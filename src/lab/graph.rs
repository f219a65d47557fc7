//! A lab as a picture: ASCII, Graphviz dot, or SVG.

use std::fmt::Write as _;

use super::topology::{HostKind, NodeId, Topology};

/// One line between two nodes: a link or an external port.
struct Edge {
    from: NodeId,
    /// The other node; None for an external interface.
    to: Option<NodeId>,
    near: String,
    far: String,
    about: String,
}

fn edges(topology: &Topology) -> Vec<Edge> {
    let links = topology.links.iter().map(|link| {
        // Drawn from the switch where there is one, and between switches from the first.
        let [a, b] = &link.ends;
        let (from, to) = if b.node < a.node { (b, a) } else { (a, b) };
        let port = |name: &str| name.split_once(':').map_or("", |(_, port)| port).to_owned();
        let impaired = link.impairment;
        let mut about = format!("{} {}", link.rate, impaired.delay);
        if impaired.loss.0 > 0 {
            let _ = write!(about, " loss {}", impaired.loss);
        }
        Edge {
            from: from.node,
            to: Some(to.node),
            near: port(&from.name),
            far: port(&to.name),
            about,
        }
    });
    let externals = topology.externals.iter().map(|external| {
        let port = &topology.switches[external.switch].config.ports[external.port.index()];
        let netns = external.netns.as_ref().map(|netns| format!(" in {netns}")).unwrap_or_default();
        Edge {
            from: NodeId::Switch(external.switch),
            to: None,
            near: port.name.clone(),
            far: external.interface.clone(),
            about: format!("{} external{netns}", port.rate),
        }
    });
    links.chain(externals).collect()
}

fn caption(topology: &Topology, node: NodeId) -> String {
    let NodeId::Host(index) = node else { return topology.node_name(node).to_owned() };
    let host = &topology.hosts[index];
    let kind = if host.kind == HostKind::Kernel { "kernel" } else { "agent" };
    let address = host.config.ipv4.map(|(address, _)| format!(" {address}")).unwrap_or_default();
    format!("{} ({kind}{address})", host.config.name)
}

/// Each switch with what hangs on its ports, as a list that a terminal shows; links between two
/// switches stand under both.
pub fn ascii(topology: &Topology) -> String {
    let all = edges(topology);
    let mut out = format!("{}\n", topology.name);
    for node in topology.nodes() {
        let mut lines = Vec::new();
        for edge in &all {
            let to = edge.to.map(|to| caption(topology, to));
            if edge.from == node {
                let far = match &to {
                    Some(to) => format!("{to}:{}", edge.far),
                    None => format!("[{}]", edge.far),
                };
                lines.push((edge.near.clone(), edge.about.clone(), far));
            } else if edge.to == Some(node) && matches!(node, NodeId::Switch(_)) {
                let far = format!("{}:{}", caption(topology, edge.from), edge.near);
                lines.push((edge.far.clone(), edge.about.clone(), far));
            }
        }
        if lines.is_empty() {
            continue;
        }
        lines.sort_by(|a, b| super::topology::natural(&a.0, &b.0));
        let wide = |pick: fn(&(String, String, String)) -> usize| {
            lines.iter().map(pick).max().unwrap_or(0)
        };
        let (port_wide, about_wide) =
            (wide(|l| l.0.chars().count()), wide(|l| l.1.chars().count()));
        let _ = writeln!(out, "\n[{}]", caption(topology, node));
        for (port, about, far) in &lines {
            let _ = writeln!(out, "  |-- {port:<port_wide$} --({about:^about_wide$})-- {far}");
        }
    }
    out
}

/// For `dot -Tpng`.
pub fn dot(topology: &Topology) -> String {
    let mut out = format!("graph \"{}\" {{\n  rankdir = TB;\n", topology.name);
    for node in topology.nodes() {
        let shape = if matches!(node, NodeId::Switch(_)) { "box" } else { "ellipse" };
        let (name, label) = (topology.node_name(node), caption(topology, node));
        let _ = writeln!(out, "  \"{name}\" [shape = {shape}, label = \"{label}\"];");
    }
    for edge in edges(topology) {
        let to = edge.to.map_or_else(|| edge.far.clone(), |to| topology.node_name(to).to_owned());
        if edge.to.is_none() {
            let _ = writeln!(out, "  \"{}\" [shape = plaintext];", escaped(&to));
        }
        let _ = writeln!(
            out,
            "  \"{}\" -- \"{}\" [taillabel = \"{}\", headlabel = \"{}\", label = \"{}\"];",
            topology.node_name(edge.from),
            escaped(&to),
            edge.near,
            if edge.to.is_some() { &edge.far } else { "" },
            escaped(&edge.about),
        );
    }
    out.push_str("}\n");
    out
}

/// Text inside quotes in dot.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Text inside SVG.
fn in_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Rows by how far a node is from the hosts: hosts lowest, then their switches, then those behind.
fn rows(topology: &Topology) -> Vec<Vec<NodeId>> {
    let all = edges(topology);
    let mut level: Vec<(NodeId, Option<usize>)> =
        topology.nodes().map(|node| (node, matches!(node, NodeId::Host(_)).then_some(0))).collect();
    let at = |level: &[(NodeId, Option<usize>)], node: NodeId| {
        level.iter().find(|(n, _)| *n == node).and_then(|(_, l)| *l)
    };
    for round in 1..=topology.switches.len() {
        let found: Vec<usize> = (0..level.len())
            .filter(|index| {
                let (node, known) = level[*index];
                let beside = |edge: &Edge| {
                    let other = if edge.from == node { edge.to } else { Some(edge.from) };
                    (edge.from == node || edge.to == Some(node))
                        && other.and_then(|other| at(&level, other)) == Some(round - 1)
                };
                known.is_none() && all.iter().any(beside)
            })
            .collect();
        for index in found {
            level[index].1 = Some(round);
        }
    }
    let deepest = level.iter().filter_map(|(_, l)| *l).max().unwrap_or(0);
    let mut rows = vec![Vec::new(); deepest + 1];
    for (node, l) in level {
        // A part without hosts stands in the top row.
        rows[deepest - l.unwrap_or(deepest)].push(node);
    }
    rows
}

/// A picture that stands alone.
pub fn svg(topology: &Topology) -> String {
    const STEP: usize = 190;
    const ROW: usize = 130;
    let rows = rows(topology);
    let widest = rows.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let (width, height) = (widest * STEP + 20, rows.len() * ROW + 40);
    let mut places: Vec<(NodeId, usize, usize)> = Vec::new();
    for (row, nodes) in rows.iter().enumerate() {
        for (column, node) in nodes.iter().enumerate() {
            let gap = (width - 20) / nodes.len().max(1);
            places.push((*node, 10 + gap * column + gap / 2, 40 + row * ROW + 20));
        }
    }
    let place = |node: NodeId| {
        places.iter().find(|(n, _, _)| *n == node).map_or((0, 0), |(_, x, y)| (*x, *y))
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n\
         <title>{}</title>\n",
        in_xml(&topology.name)
    );
    for edge in edges(topology) {
        let (x1, y1) = place(edge.from);
        let (x2, y2) = edge.to.map_or_else(|| (x1 + STEP / 2, y1.saturating_sub(40)), place);
        let _ = writeln!(
            out,
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"#889\"/>"
        );
        let at = |share: usize| {
            ((x1 * (8 - share) + x2 * share) / 8, (y1 * (8 - share) + y2 * share) / 8)
        };
        for (share, text) in [(3, &edge.near), (5, &edge.far)] {
            let (x, y) = at(share);
            let _ = writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"10\" fill=\"#556\">{}</text>",
                in_xml(text)
            );
        }
        let (x, y) = at(4);
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"9\" fill=\"#889\">{}</text>",
            in_xml(&edge.about)
        );
    }
    for (node, x, y) in &places {
        let (fill, round) =
            if matches!(node, NodeId::Switch(_)) { ("#dde8ff", 3) } else { ("#e8f6e0", 16) };
        let (left, top) = (x - 80, y - 16);
        let label = in_xml(&caption(topology, *node));
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"160\" height=\"32\" rx=\"{round}\" \
             fill=\"{fill}\" stroke=\"#556\"/><text x=\"{x}\" y=\"{}\">{label}</text>",
            y + 4
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf_spine() -> Topology {
        let text = include_str!("../../netns-testbed/leaf-spine.toml");
        Topology::parse("leaf-spine.toml", text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn ascii_shows_every_port() {
        insta::assert_snapshot!(ascii(&leaf_spine()));
    }

    #[test]
    fn dot_has_every_node_and_link() {
        insta::assert_snapshot!(dot(&leaf_spine()));
    }

    #[test]
    fn svg_stands_spines_over_leaves_over_hosts() {
        let topology = leaf_spine();
        let names: Vec<Vec<&str>> = rows(&topology)
            .iter()
            .map(|row| row.iter().map(|node| topology.node_name(*node)).collect())
            .collect();
        assert_eq!(
            names,
            [vec!["spine1", "spine2"], vec!["leaf1", "leaf2"], vec!["h1", "h2", "h3", "h4"]]
        );
        let drawn = svg(&topology);
        assert_eq!(drawn.matches("<line ").count(), 8);
        assert_eq!(drawn.matches("<rect ").count(), 8);
    }
}
