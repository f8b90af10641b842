//! A node as a process: it can be killed, paused and started again.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use everytick_engine::Spawn;
use futures::future::BoxFuture;
use tokio::task::AbortHandle;

/// Runs the tasks of one process.
#[derive(Clone, Default)]
pub struct Process(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    stopped: bool,
    killed: bool,
    wakers: Vec<Waker>,
    tasks: Vec<AbortHandle>,
}

impl Process {
    /// Like SIGSTOP: none of its tasks runs, while time passes.
    pub fn pause(&self) {
        self.0.lock().unwrap().stopped = true;
    }
    pub fn resume(&self) {
        let mut inner = self.0.lock().unwrap();
        inner.stopped = false;
        for waker in inner.wakers.drain(..) {
            waker.wake();
        }
    }
    /// Like SIGKILL: statements already sent still arrive; everything else is gone.
    pub fn kill(&self) {
        let tasks = {
            let mut inner = self.0.lock().unwrap();
            inner.killed = true;
            std::mem::take(&mut inner.tasks)
        };
        for task in tasks {
            task.abort();
        }
    }
}

impl Spawn for Process {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let handle = tokio::spawn(Stoppable { process: self.clone(), task }).abort_handle();
        let mut inner = self.0.lock().unwrap();
        if inner.killed {
            handle.abort();
        }
        inner.tasks.retain(|task| !task.is_finished());
        inner.tasks.push(handle);
    }
}

struct Stoppable {
    process: Process,
    task: BoxFuture<'static, ()>,
}

impl Future for Stoppable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut inner = self.process.0.lock().unwrap();
            if inner.stopped {
                inner.wakers.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.task.as_mut().poll(context)
    }
}
