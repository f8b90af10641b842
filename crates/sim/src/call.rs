//! One call to the simulated database: it travels, executes at one instant, and travels back, as its faults decide.

use std::sync::PoisonError;

use everytick_domain::time::DbTime;
use everytick_store::{Result, StoreError};
use tokio::sync::oneshot;

use super::{
    Fate, Point, SimStore,
    db::{CallContext, Db},
    tx::{self, SimTx},
};

/// Executes a transaction on the maps. Clones the borrowed arguments in brackets: the transaction may outlive the call.
macro_rules! call {
    ($store:expr, $point:ident, [$($arg:ident),*], |$db:pat_param, $now:pat_param| $body:expr) => {{
        $(let $arg = $arg.to_owned();)*
        $store.transact(Point::$point, move |$db, $now| $body).await
    }};
}
pub(super) use call;

/// Executes a script of `everytick_store::tx`. Clones the borrowed arguments in brackets, as `call!` does.
macro_rules! script {
    ($store:expr, $point:ident, $doing:expr, [$($arg:ident),*], |$tx:ident| $body:expr) => {{
        $(let $arg = $arg.to_owned();)*
        $store.in_tx(Point::$point, $doing, async move |$tx: &mut SimTx<'_>| $body.await).await
    }};
}
pub(super) use script;

impl SimStore {
    /// Runs a script as one transaction.
    pub(super) async fn in_tx<T: Send + 'static>(
        &self,
        point: Point,
        doing: &'static str,
        script: impl AsyncFnOnce(&mut SimTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.transact(point, move |db, now| tx::execute(db, doing, now, script)).await
    }

    /// Runs one transaction: delays the request, executes the body at one instant, delays the reply. A caller that stops
    /// waiting does not stop the transaction.
    pub(super) async fn transact<T: Send + 'static>(
        &self,
        point: Point,
        body: impl FnOnce(&mut Db, DbTime) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (db, clock, faults) = (self.db.clone(), self.clock.clone(), self.faults.clone());
        let (sent_at, call) = (clock.now(), faults.call(point));
        let execute = move || {
            let mut db = db.lock().unwrap_or_else(PoisonError::into_inner);
            let now = clock.now();
            db.call = CallContext { faults, sent_at, now };
            body(&mut db, now)
        };
        let Some(call) = call else { return execute() };
        let doing = point.word();
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(call.travel).await;
            if call.fate == Fate::FailedBefore {
                let _ = reply.send(Err(StoreError::Failed { doing, source: "refused by a fault".into() }));
                return;
            }
            let result = execute();
            if !call.back.is_zero() {
                tokio::time::sleep(call.back).await;
            }
            let _ = reply.send(match call.fate {
                Fate::ReplyLost => Err(StoreError::Unsure { doing, source: "the reply was lost".into() }),
                Fate::Done | Fate::FailedBefore => result,
            });
        });
        answer.await.unwrap_or_else(|_| Err(StoreError::Unsure { doing, source: "no reply".into() }))
    }
}
