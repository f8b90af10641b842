//! Who runs the engine's tasks: the runtime, or a simulator that can stop and kill them.

use futures::future::BoxFuture;

pub trait Spawn: Send + Sync + 'static {
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

#[derive(Clone, Copy, Debug)]
pub struct TokioSpawn;

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}
