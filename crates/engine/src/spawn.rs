//! Where the engine's tasks run: in the tokio runtime, or in a simulator that can pause and kill them.

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
