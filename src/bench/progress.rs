//! Shows the progress of a benchmark: a bar on a terminal, otherwise a line per phase.

use std::{
    io::{self, IsTerminal},
    sync::Mutex,
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    phase: Mutex<&'static str>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg:24} {wide_bar} {human_pos}/{human_len} {eta}");
            let bar = ProgressBar::new(0);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, phase: Mutex::new("") }
    }

    pub(super) fn begin(&self, phase: &'static str, steps: u64) {
        match &self.bar {
            Some(bar) => {
                bar.reset();
                bar.set_length(steps);
                bar.set_message(phase);
            }
            None => {
                let mut last = self.phase.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if *last != phase {
                    *last = phase;
                    output::note_line(phase);
                }
            }
        }
    }

    pub(super) fn at(&self, step: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(step);
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
