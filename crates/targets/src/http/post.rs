//! Sends documents of the operator itself, such as the audit trail, under the rules of webhooks: only to checked addresses, to
//! allowed hosts and ports, and never to the API of the cluster.

use everytick_domain::target::Outcome;
use url::Url;

use super::{Http, deliver::unanswered};

impl Http {
    /// Posts a body. Success is an answer with 2xx. A message names only the host and port, because the rest of a URL may contain a
    /// credential. The caller limits the time.
    pub(crate) async fn post(&self, url: &Url, media_type: &'static str, body: Vec<u8>) -> Result<(), String> {
        let at = url.authority();
        self.check(url).map_err(|why| format!("cannot send to {at}: {why}"))?;
        let request = self.plain(url, media_type, body)?;
        let client = self.client(&request, None)?;
        match client.request(request).await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(format!("{at} answered {}", answer.status())),
            Err(error) => Err(match unanswered(&error, at) {
                Outcome::Failed { error, .. } | Outcome::NotHere { error, .. } => error,
                _ => format!("could not send to {at}"),
            }),
        }
    }
}
