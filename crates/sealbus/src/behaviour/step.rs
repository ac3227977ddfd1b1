//! The steps of behaviours, and steps that consist of others.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::{select_all, try_join_all};

use super::Run;
use crate::context::Voice;
use crate::supervision::AgentResult;

type RunningStep = Pin<Box<dyn Future<Output = AgentResult> + Send>>;

/// The work of a behaviour: a plain async function that takes the agent's [`Voice`], or several such functions
/// together. A closure brings everything else that it needs, such as state that it shares with the agent.
#[derive(Clone)]
pub struct Step(Arc<dyn Fn(Run) -> RunningStep + Send + Sync>);

impl<F, R> From<F> for Step
where
    F: Fn(Voice) -> R + Send + Sync + 'static,
    R: Future<Output = AgentResult> + Send + 'static,
{
    fn from(step: F) -> Step {
        Step(Arc::new(move |run: Run| Box::pin(step(run.voice))))
    }
}

impl Step {
    /// A step that runs a function; the same as `Step::from`.
    pub fn new<F, R>(step: F) -> Step
    where
        F: Fn(Voice) -> R + Send + Sync + 'static,
        R: Future<Output = AgentResult> + Send + 'static,
    {
        step.into()
    }

    pub(super) fn run(&self, run: Run) -> RunningStep {
        (self.0)(run)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").finish_non_exhaustive()
    }
}

/// Runs several steps as one, one after the other, up to the first error.
///
/// ```
/// use sealbus::behaviour::{Step, parallel, sequence};
/// use sealbus::{AgentResult, Voice};
///
/// async fn boil(voice: Voice) -> AgentResult { Ok(()) }
/// async fn lay(voice: Voice) -> AgentResult { Ok(()) }
/// async fn serve(voice: Voice) -> AgentResult { Ok(()) }
///
/// let tea = sequence([parallel([Step::new(boil), Step::new(lay)]), Step::new(serve)]);
/// ```
pub fn sequence(steps: impl IntoIterator<Item = Step>) -> Step {
    let steps: Arc<[Step]> = steps.into_iter().collect();
    Step(Arc::new(move |run: Run| {
        let steps = steps.clone();
        Box::pin(async move {
            for step in steps.iter() {
                step.run(run.clone()).await?;
            }
            Ok(())
        })
    }))
}

/// Runs several steps as one, side by side, until all have ended. After an error the others are cancelled.
pub fn parallel(steps: impl IntoIterator<Item = Step>) -> Step {
    let steps: Arc<[Step]> = steps.into_iter().collect();
    Step(Arc::new(move |run: Run| {
        let all = try_join_all(steps.iter().map(|step| step.run(run.clone())));
        Box::pin(async move { all.await.map(drop) })
    }))
}

/// Runs several steps as one, side by side, until the first has ended. Then the others are cancelled.
pub fn first_of(steps: impl IntoIterator<Item = Step>) -> Step {
    let steps: Arc<[Step]> = steps.into_iter().collect();
    Step(Arc::new(move |run: Run| {
        let all: Vec<RunningStep> = steps.iter().map(|step| step.run(run.clone())).collect();
        Box::pin(async move {
            match all.is_empty() {
                true => Ok(()),
                false => select_all(all).await.0,
            }
        })
    }))
}

/// A finite-state machine: `next` does the work of a state and returns the following state, or `None` at the end.
/// [`Behaviour::state`](super::Behaviour::state) shows the present one.
///
/// ```
/// use std::time::Duration;
/// use sealbus::behaviour::{machine, once};
/// use sealbus::{AgentResult, Context, Voice};
///
/// #[derive(Clone, Debug)]
/// enum Door {
///     Open,
///     Shut,
/// }
///
/// async fn door(voice: Voice, state: Door) -> AgentResult<Option<Door>> {
///     Ok(match state {
///         Door::Open => {
///             voice.clock().sleep(Duration::from_secs(5)).await;
///             Some(Door::Shut)
///         }
///         Door::Shut => None,
///     })
/// }
///
/// # fn setup(context: &mut Context) {
/// context.begin("door", once(), machine(Door::Open, door));
/// # }
/// ```
pub fn machine<S, F, R>(start: S, next: F) -> Step
where
    S: Clone + fmt::Debug + Send + Sync + 'static,
    F: Fn(Voice, S) -> R + Send + Sync + 'static,
    R: Future<Output = AgentResult<Option<S>>> + Send + 'static,
{
    let next = Arc::new(next);
    Step(Arc::new(move |run: Run| {
        let (next, mut state) = (next.clone(), Some(start.clone()));
        Box::pin(async move {
            while let Some(present) = state {
                *run.account.state.lock() = Some(format!("{present:?}"));
                state = next(run.voice.clone(), present).await?;
            }
            Ok(())
        })
    }))
}
