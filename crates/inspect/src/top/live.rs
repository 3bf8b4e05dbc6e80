//! What `shunt top` shows, for whoever asks again and again: the page of `shunt ui`.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Sort, batch::as_json, model::Model, sample};
use crate::engines::Which;

/// Engines are not asked more often than this, however many ask here.
const LEAST: Duration = Duration::from_millis(400);

/// What somebody else knows of the moment.
type Beside = Box<dyn Fn() -> Value + Send + Sync>;

/// The newest sample, with rates since the one before.
pub struct Live {
    which: Which,
    beside: Vec<(&'static str, Beside)>,
    state: Mutex<State>,
}

struct State {
    model: Model,
    at: Option<Instant>,
    shown: Value,
}

impl Live {
    /// Nothing is asked yet.
    pub fn new(which: Which) -> Self {
        Self {
            which,
            beside: Vec::new(),
            state: Mutex::new(State {
                model: Model::new(Sort::default(), String::new()),
                at: None,
                shown: Value::Null,
            }),
        }
    }

    /// Each sample has a field of this name as well.
    #[must_use]
    pub fn with(
        mut self,
        name: &'static str,
        look: impl Fn() -> Value + Send + Sync + 'static,
    ) -> Self {
        self.beside.push((name, Box::new(look)));
        self
    }

    /// Engines, programs and connections, perhaps none.
    pub fn look(&self) -> Value {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.at.is_none_or(|at| at.elapsed() >= LEAST) {
            state.model.update(sample::take(&self.which));
            state.at = Some(Instant::now());
            state.shown = as_json(&state.model);
            state.shown["has_rates"] = state.model.has_rates.into();
            for (name, look) in &self.beside {
                state.shown[*name] = look();
            }
        }
        state.shown.clone()
    }
}
