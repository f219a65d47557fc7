//! Which worker runs which node.

use crate::lab::plan::Plan;

/// A worker thread to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The core it is pinned to, when a node asked for one or there are as many as workers.
    pub core: Option<usize>,
    /// The nodes it runs, as counted by the plan.
    pub nodes: Vec<usize>,
}

/// Places the plan's nodes on at most `workers_max` workers: nodes with a core of their own on the
/// worker of that core, the others where there are fewest ports, larger nodes first. The same plan
/// is always placed in the same way.
pub fn place(plan: &Plan, workers_max: usize, cores: &[usize]) -> Vec<Placement> {
    let free = plan.nodes.iter().filter(|node| node.core.is_none()).count();
    let mut workers: Vec<Placement> = Vec::new();
    for (index, node) in plan.nodes.iter().enumerate() {
        let Some(core) = node.core.and_then(|core| usize::try_from(core).ok()) else { continue };
        match workers.iter_mut().find(|worker| worker.core == Some(core)) {
            Some(worker) => worker.nodes.push(index),
            None => workers.push(Placement { core: Some(core), nodes: vec![index] }),
        }
    }
    let mut spare = cores.iter().filter(|core| !workers.iter().any(|w| w.core == Some(**core)));
    let mut added = Vec::new();
    while workers.len() + added.len() < workers_max.max(1) && added.len() < free {
        added.push(Placement { core: spare.next().copied(), nodes: Vec::new() });
    }
    workers.append(&mut added);
    let mut by_size: Vec<usize> =
        (0..plan.nodes.len()).filter(|index| plan.nodes[*index].core.is_none()).collect();
    by_size.sort_by_key(|index| std::cmp::Reverse(plan.nodes[*index].ports.len()));
    for index in by_size {
        let ports = |worker: &Placement| -> usize {
            worker.nodes.iter().map(|node| plan.nodes[*node].ports.len()).sum()
        };
        if let Some(worker) = workers.iter_mut().min_by_key(|worker| ports(worker)) {
            worker.nodes.push(index);
        }
    }
    for worker in &mut workers {
        worker.nodes.sort_unstable();
    }
    workers
}
