//! Draws a flow as a tree. A job with several parents is drawn under the last of them, and its note lists all of them.

use std::fmt;

use serde::Deserialize;

/// A job of a flow, from the API's answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeView {
    pub(crate) job: String,
    pub(crate) run: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) skip_reason: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) parents: Vec<ParentView>,
    pub(crate) started_at: Option<String>,
    pub(crate) finished_at: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ParentView {
    pub(crate) job: String,
    pub(crate) when: String,
}

/// The form that `--after` accepts.
impl fmt::Display for ParentView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when.as_str() {
            "succeeded" => f.write_str(&self.job),
            when => write!(f, "{}:{when}", self.job),
        }
    }
}

impl NodeView {
    /// The parents and their conditions. Empty if the tree shows them: one parent, which must succeed.
    pub(crate) fn waits_for(&self) -> String {
        let plain = |parent: &ParentView| parent.when == "succeeded";
        if self.parents.len() < 2 && self.parents.iter().all(plain) {
            return String::new();
        }
        format!("after {}", self.parents.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    }
}

/// The jobs from the roots down, each with the branch characters before its name.
pub(crate) fn tree(nodes: &[NodeView]) -> Vec<(String, &NodeView)> {
    let position = |name: &str| nodes.iter().position(|node| node.job == name);
    // Parents precede their children in the list. Under its last parent, a job follows all its parents.
    let above: Vec<Option<usize>> = nodes
        .iter()
        .enumerate()
        .map(|(own, node)| {
            node.parents.iter().filter_map(|parent| position(&parent.job)).filter(|parent| *parent < own).max()
        })
        .collect();
    let below =
        |parent: Option<usize>| -> Vec<usize> { (0..nodes.len()).filter(|node| above[*node] == parent).collect() };
    let mut lines = Vec::new();
    let mut next: Vec<(usize, String, String)> =
        below(None).into_iter().rev().map(|root| (root, String::new(), String::new())).collect();
    while let Some((node, own, indent)) = next.pop() {
        lines.push((own, &nodes[node]));
        let children = below(Some(node));
        for (index, child) in children.iter().enumerate().rev() {
            let (branch, rest) = if index + 1 == children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            next.push((*child, format!("{indent}{branch}"), format!("{indent}{rest}")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(nodes: &[(&str, &[&str])]) -> Vec<String> {
        let parent = |text: &&str| {
            let (job, when) = text.split_once(':').unwrap_or((text, "succeeded"));
            ParentView { job: job.to_owned(), when: when.to_owned() }
        };
        let view = |(job, parents): &(&str, &[&str])| NodeView {
            job: (*job).to_owned(),
            parents: parents.iter().map(parent).collect(),
            ..NodeView::default()
        };
        let nodes: Vec<_> = nodes.iter().map(view).collect();
        let line = |(branch, node): (String, &NodeView)| format!("{branch}{} {}", node.job, node.waits_for());
        tree(&nodes).into_iter().map(|pair| line(pair).trim_end().to_owned()).collect()
    }

    #[test]
    fn a_job_with_two_parents_is_drawn_under_the_last_one() {
        let nodes: &[(&str, &[&str])] = &[
            ("extract", &[]),
            ("left", &["extract"]),
            ("right", &["extract"]),
            ("load", &["left", "right"]),
            ("mend", &["left:failed"]),
            ("clean", &["load:finished"]),
        ];
        assert_eq!(
            drawn(nodes),
            [
                "extract",
                "├─ left",
                "│  └─ mend after left:failed",
                "└─ right",
                "   └─ load after left, right",
                "      └─ clean after load:finished",
            ]
        );
    }

    #[test]
    fn a_rerun_may_have_several_roots_and_parents_outside_the_flow() {
        assert_eq!(drawn(&[("b", &["a"]), ("c", &["a"]), ("d", &["b", "c"])]), ["b", "c", "└─ d after b, c"]);
    }
}
