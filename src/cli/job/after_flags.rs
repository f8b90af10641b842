//! The flag `--after`: the parent jobs of a job in a flow.

use clap::Args;
use everytick_domain::flow::When;
use serde_json::{Value, json};

#[derive(Debug, Default, Args)]
pub(crate) struct AfterFlags {
    /// Run after this job: NAME when it has succeeded, NAME:failed when it has failed, NAME:finished in any end state; repeatable
    #[arg(long, value_name = "JOB[:HOW]", value_parser = parent, help_heading = "When")]
    after: Vec<(String, When)>,
}

impl AfterFlags {
    /// The `depends_on` of the definition. `None` if no job is named.
    pub(crate) fn depends_on(self) -> Option<Value> {
        let parent = |(job, when): (String, When)| json!({ "job": job, "when": when.word() });
        (!self.after.is_empty()).then(|| self.after.into_iter().map(parent).collect())
    }
}

fn parent(text: &str) -> Result<(String, When), String> {
    let (job, word) = text.split_once(':').unwrap_or((text, When::Succeeded.word()));
    let when = When::from_word(word).ok_or_else(|| {
        let words = When::ALL.map(When::word).join(", ");
        format!("{word:?} is not a condition; write one of {words}")
    })?;
    if job.is_empty() {
        return Err(format!("{text:?} names no job; write it like \"extract\" or \"extract:failed\""));
    }
    Ok((job.to_owned(), when))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_parsed_with_its_condition() {
        let read = |text: &str| parent(text).map(|(job, when)| (job, when.word()));
        assert_eq!(read("extract"), Ok(("extract".into(), "succeeded")));
        assert_eq!(read("extract:failed"), Ok(("extract".into(), "failed")));
        assert_eq!(read("a.b:finished"), Ok(("a.b".into(), "finished")));
        assert!(read("extract:done").unwrap_err().contains("write one of succeeded, failed, finished"));
        assert!(read(":failed").unwrap_err().contains("names no job"));
    }

    #[test]
    fn without_the_flag_there_is_no_depends_on() {
        assert_eq!(AfterFlags::default().depends_on(), None);
        let named = AfterFlags { after: vec![("a".into(), When::Failed)] };
        assert_eq!(named.depends_on(), Some(json!([{ "job": "a", "when": "failed" }])));
    }
}
