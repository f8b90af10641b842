//! The edges that the store has read: those between all jobs connected with one job. Refuses a definition that would
//! make a cycle or connect too many jobs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Edge, FLOW_JOBS_MAX, Graph, Node, When};
use crate::{ids::JobId, invalid::Invalid};

/// Some jobs of a tenant and the edges between them.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    names: BTreeMap<JobId, String>,
    parents: BTreeMap<JobId, Vec<(JobId, When)>>,
    children: BTreeMap<JobId, BTreeSet<JobId>>,
}

impl Edges {
    pub fn add_job(&mut self, job: JobId, name: impl Into<String>) {
        self.names.insert(job, name.into());
    }

    pub fn add(&mut self, child: JobId, parent: JobId, when: When) {
        let parents = self.parents.entry(child).or_default();
        if !parents.iter().any(|(known, _)| *known == parent) {
            parents.push((parent, when));
        }
        self.children.entry(parent).or_default().insert(child);
    }

    /// Replaces the parents of a job. Refuses a cycle and more than `FLOW_JOBS_MAX` connected jobs.
    pub fn define(&mut self, child: JobId, name: &str, parents: &[(JobId, When)]) -> Result<(), Invalid> {
        self.orphan(child);
        self.add_job(child, name);
        for (parent, _) in parents {
            if let Some(cycle) = self.path_down(child, *parent) {
                let names: Vec<_> = cycle.iter().chain([&child]).map(|job| self.name(*job)).collect();
                return Err(Invalid::new("depends_on", format!("makes a cycle: {}", names.join(" -> "))));
            }
        }
        for (parent, when) in parents {
            self.add(child, *parent, *when);
        }
        let count = self.connected(child).len();
        if count > FLOW_JOBS_MAX {
            self.orphan(child);
            let message = format!("connects more than {FLOW_JOBS_MAX} jobs; a flow may have at most that many");
            return Err(Invalid::new("depends_on", message));
        }
        Ok(())
    }

    /// Removes all parents of a job.
    fn orphan(&mut self, child: JobId) {
        for (parent, _) in self.parents.remove(&child).unwrap_or_default() {
            if let Some(children) = self.children.get_mut(&parent) {
                children.remove(&child);
            }
        }
    }

    fn name(&self, job: JobId) -> String {
        self.names.get(&job).cloned().unwrap_or_else(|| job.to_string())
    }

    fn children(&self, job: JobId) -> impl Iterator<Item = JobId> + '_ {
        self.children.get(&job).into_iter().flatten().copied()
    }

    /// A shortest path from a job to a descendant. The path from a job to itself is the job.
    fn path_down(&self, from: JobId, to: JobId) -> Option<Vec<JobId>> {
        let mut came_from = BTreeMap::from([(from, None)]);
        let mut next = VecDeque::from([from]);
        while let Some(job) = next.pop_front() {
            if job == to {
                let mut path = vec![job];
                while let Some(Some(before)) = path.last().and_then(|last| came_from.get(last)) {
                    path.push(*before);
                }
                path.reverse();
                return Some(path);
            }
            for child in self.children(job) {
                came_from.entry(child).or_insert_with(|| {
                    next.push_back(child);
                    Some(job)
                });
            }
        }
        None
    }

    /// All jobs connected with a job, including itself.
    fn connected(&self, job: JobId) -> BTreeSet<JobId> {
        let (mut connected, mut next) = (BTreeSet::from([job]), vec![job]);
        while let Some(job) = next.pop() {
            let parents = self.parents.get(&job).into_iter().flatten().map(|(parent, _)| *parent);
            next.extend(parents.chain(self.children(job)).filter(|other| connected.insert(*other)));
        }
        connected
    }

    /// The flow that a run of `root` opens: all jobs reachable from it, with the edges between them. Parents come before their
    /// children; jobs of one level are sorted by name.
    #[must_use]
    pub fn graph(&self, root: JobId) -> Graph {
        let (mut reached, mut next) = (BTreeSet::from([root]), vec![root]);
        while let Some(job) = next.pop() {
            next.extend(self.children(job).filter(|child| reached.insert(*child)));
        }
        let node = |job: &JobId| {
            let within = |(parent, _): &&(JobId, When)| *job != root && reached.contains(parent);
            let edges = self.parents.get(job).into_iter().flatten().filter(within);
            let parents = edges.map(|(job, when)| Edge { job: *job, when: *when }).collect();
            Node { job: *job, name: self.name(*job), parents, starts: *job == root }
        };
        Graph { root: Some(root), nodes: reached.iter().map(node).collect(), outside: Vec::new() }.ordered()
    }
}

/// The order in which to create the given definitions: parents before their children, otherwise as given. Each entry is
/// a name and the names of its parents.
#[must_use]
pub fn in_order(given: &[(&str, Vec<&str>)]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..given.len()).collect();
    let mut order = Vec::with_capacity(given.len());
    let mut waiting: BTreeSet<&str> = given.iter().map(|(name, _)| *name).collect();
    loop {
        let ready = |index: &usize| given[*index].1.iter().all(|parent| !waiting.contains(parent));
        let (now, later): (Vec<usize>, Vec<usize>) = left.into_iter().partition(ready);
        if now.is_empty() {
            // Either no definition is left, or the rest form a cycle. Creating the rest fails, because a parent does
            // not exist.
            order.extend(later);
            return order;
        }
        for index in &now {
            waiting.remove(given[*index].0);
        }
        order.extend(now);
        left = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn job(n: u128) -> JobId {
        JobId::from_uuid(Uuid::from_u128(n))
    }

    /// Jobs 1, 2, ... named a, b, ..., and edges from parent to child.
    fn edges(jobs: u8, edges: &[(u128, u128)]) -> Edges {
        let mut found = Edges::default();
        for n in 1..=jobs {
            found.add_job(job(n.into()), char::from(b'a' + n - 1).to_string());
        }
        for (parent, child) in edges {
            found.add(job(*child), job(*parent), When::Succeeded);
        }
        found
    }

    #[test]
    fn a_cycle_is_refused_and_named() {
        for (existing, child, parents, cycle) in [
            (&[(1, 2)][..], 1, &[2][..], Some("a -> b -> a")),
            (&[(1, 2), (2, 3), (3, 4)], 1, &[4], Some("a -> b -> c -> d -> a")),
            (&[(1, 2), (2, 3), (1, 3)], 1, &[3], Some("a -> c -> a")),
            (&[(1, 2), (1, 3), (2, 4), (3, 4)], 4, &[2, 3], None),
            // The old edges are removed before the new ones are added.
            (&[(1, 2)], 2, &[3], None),
            (&[], 1, &[1], Some("a -> a")),
        ] {
            let mut edges = edges(4, existing);
            let parents: Vec<_> = parents.iter().map(|parent| (job(*parent), When::Succeeded)).collect();
            let name = char::from(b'a' + u8::try_from(child).unwrap() - 1).to_string();
            let found = edges.define(job(child), &name, &parents).err().map(|invalid| invalid.to_string());
            assert_eq!(found, cycle.map(|cycle| format!("depends_on: makes a cycle: {cycle}")), "{existing:?}");
        }
    }

    #[test]
    fn reversing_an_edge_is_no_cycle_after_the_old_edge_is_removed() {
        let mut edges = edges(2, &[(1, 2)]);
        edges.define(job(2), "b", &[]).unwrap();
        edges.define(job(1), "a", &[(job(2), When::Succeeded)]).unwrap();
    }

    #[test]
    fn connecting_more_jobs_than_a_flow_may_have_is_refused() {
        let mut edges = Edges::default();
        for n in 1..=FLOW_JOBS_MAX as u128 {
            edges.add_job(job(n), format!("j{n}"));
        }
        for n in 2..=FLOW_JOBS_MAX as u128 {
            edges.define(job(n), &format!("j{n}"), &[(job(1), When::Succeeded)]).unwrap();
        }
        let one_more = edges.define(job(5_000), "more", &[(job(7), When::Succeeded)]).unwrap_err();
        assert_eq!(one_more.field, "depends_on");
        assert!(one_more.message.contains("1000 jobs"), "{one_more}");
    }

    #[test]
    fn a_flow_contains_the_reachable_jobs_and_the_edges_between_them() {
        // a -> b, c -> d; x -> d comes from outside, and x itself is not reachable.
        let edges = edges(5, &[(1, 2), (1, 3), (2, 4), (3, 4), (5, 4)]);
        let graph = edges.graph(job(1));
        let shown: Vec<_> = graph.nodes.iter().map(|node| (node.name.as_str(), node.parents.len())).collect();
        assert_eq!(shown, [("a", 0), ("b", 1), ("c", 1), ("d", 2)]);
        let from_b = edges.graph(job(2));
        let shown: Vec<_> = from_b.nodes.iter().map(|node| (node.name.as_str(), node.parents.len())).collect();
        assert_eq!(shown, [("b", 0), ("d", 1)], "the parent of the root b is not part of the flow");
    }

    #[test]
    fn parents_in_the_same_batch_are_created_first() {
        let order = |given: &[(&str, &[&str])]| {
            in_order(&given.iter().map(|(name, parents)| (*name, parents.to_vec())).collect::<Vec<_>>())
        };
        assert_eq!(order(&[("a", &[]), ("b", &["a"])]), [0, 1]);
        assert_eq!(order(&[("c", &["b"]), ("b", &["a", "elsewhere"]), ("a", &[])]), [2, 1, 0]);
        assert_eq!(order(&[("a", &["b"]), ("b", &["a"]), ("c", &[])]), [2, 0, 1]);
    }
}
