//! The dry run of a delete: a job that other jobs name in `depends_on` cannot be deleted, unless the command deletes those as well.

use std::collections::BTreeMap;

use serde::Serialize;

use super::view::JobView;
use crate::{
    client::{Client, Page},
    failure::{Exit, Failure},
    output,
};

/// A job that the command would not delete.
#[derive(Debug, Serialize)]
pub(super) struct Refused {
    job: String,
    /// The jobs that name it in `depends_on` and would remain.
    followers: Vec<String>,
}

/// Removes from the page the jobs that cannot be deleted, and returns them.
pub(super) async fn split(client: &Client, jobs: &mut Page) -> anyhow::Result<Vec<Refused>> {
    let mut followers = BTreeMap::new();
    for job in jobs.read::<JobView>()? {
        // Jobs in a list do not name their followers.
        let whole: JobView = client.get(&["jobs", &job.name]).send().await?.read()?;
        followers.insert(job.name, whole.followers);
    }
    let remaining = remaining(&followers);
    let mut kept = Vec::new();
    for job in std::mem::take(&mut jobs.items) {
        if !remaining.contains_key(&job.read::<JobView>()?.name) {
            kept.push(job);
        }
    }
    jobs.items = kept;
    Ok(remaining.into_iter().map(|(job, followers)| Refused { job, followers }).collect())
}

/// The jobs that cannot be deleted, each with the followers that would remain. A follower that itself cannot be deleted remains.
fn remaining(followers: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
    let mut refused: BTreeMap<String, Vec<String>> = BTreeMap::new();
    loop {
        let remains = |follower: &String| !followers.contains_key(follower) || refused.contains_key(follower);
        let found: BTreeMap<_, Vec<String>> = followers
            .iter()
            .map(|(job, followers)| (job.clone(), followers.iter().filter(|job| remains(job)).cloned().collect()))
            .filter(|(_, remaining): &(String, Vec<String>)| !remaining.is_empty())
            .collect();
        if found == refused {
            return refused;
        }
        refused = found;
    }
}

/// The exit code that the command itself would have, and a line for each job.
pub(super) fn failure(refused: &[Refused], is_one: bool) -> anyhow::Result<()> {
    let line = |refused: &Refused| {
        let (job, by) = (&refused.job, refused.followers.join(", "));
        let jobs = if refused.followers.len() == 1 { "depends" } else { "depend" };
        format!("{job} cannot be deleted: {by} {jobs} on it; delete {by} as well, or remove its depends_on")
    };
    match refused {
        [] => Ok(()),
        [one] if is_one => Err(Failure::new(Exit::Conflict, line(one)).into()),
        several => {
            several.iter().for_each(|refused| output::note_line(&output::error_text(&line(refused))));
            let count = several.len();
            let jobs = if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") };
            Err(Failure::new(Exit::Failed, format!("{jobs} cannot be deleted")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_remains_if_a_follower_of_it_remains() {
        let jobs = |pairs: &[(&str, &[&str])]| -> BTreeMap<String, Vec<String>> {
            pairs
                .iter()
                .map(|(job, of)| ((*job).to_owned(), of.iter().map(|job| (*job).to_owned()).collect()))
                .collect()
        };
        assert_eq!(remaining(&jobs(&[("a", &["b"]), ("b", &[])])), jobs(&[]));
        assert_eq!(remaining(&jobs(&[("a", &["b", "c"]), ("b", &[])])), jobs(&[("a", &["c"])]));
        assert_eq!(remaining(&jobs(&[("a", &["b"]), ("b", &["c"])])), jobs(&[("a", &["b"]), ("b", &["c"])]));
    }
}
