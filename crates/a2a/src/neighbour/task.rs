//! A task of an agent of others, followed to its end: of what is told, only what is new. Free of I/O.

use std::collections::HashMap;

use super::answer::{AnswerError, Artifact, Course, Part, Status, Told};

/// Most results of a task.
const MOST_ARTIFACTS: usize = 1_024;
/// Most bytes of all results.
const MOST_BYTES: usize = 64 << 20;

/// Something new.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// It has begun.
    Begun,
    /// A part of the result.
    Part(Part),
    /// How far it is, in words.
    Progress(String),
    /// It asks this, and waits.
    Asked(String),
    /// Nothing more becomes of it.
    Ended(End),
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// Well, with the agent's words, which are the result if there is no other.
    Completed(Vec<Part>),
    /// Without a result, and why.
    Failed(String),
    /// It was not begun, and why.
    Rejected(String),
    /// It was cancelled, by us or by others.
    Canceled(String),
    /// The agent wants a login before it goes on.
    AuthRequired(String),
}

/// The known facts about a task.
#[derive(Debug, Default)]
pub struct Following {
    id: Option<String>,
    context: String,
    /// How many parts of each result were given.
    given: HashMap<String, usize>,
    bytes: usize,
    has_begun: bool,
    has_ended: bool,
    /// The question that was put last, which a task tells of until it goes on.
    asked: Option<(String, String)>,
}

impl Following {
    /// The task, once it is known.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The context of the task.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// Whether nothing more becomes of it.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes what the agent tells.
    ///
    /// # Errors
    /// [`AnswerError`] if it is about another task, or too much.
    pub fn take(&mut self, told: Told) -> Result<Vec<News>, AnswerError> {
        if self.has_ended {
            return Ok(Vec::new());
        }
        let mut news = Vec::new();
        match told {
            Told::Message(parts) => {
                if self.id.is_some() {
                    return Err(AnswerError::ForeignTask);
                }
                self.has_ended = true;
                news.push(News::Ended(End::Completed(parts)));
            }
            Told::Task {
                id,
                context,
                status,
                artifacts,
            } => {
                self.is_of(&id)?;
                self.context = context;
                for artifact in artifacts {
                    let given = self.given.get(&artifact.id).copied().unwrap_or(0);
                    self.give(artifact, given, &mut news)?;
                }
                let question = (status.stamp.clone(), status.text());
                if status.course != Course::InputRequired || self.asked != Some(question) {
                    self.enter(status, &mut news);
                }
            }
            Told::Status { id, status } => {
                self.is_of(&id)?;
                self.enter(status, &mut news);
            }
            Told::Artifact {
                id,
                artifact,
                append,
            } => {
                self.is_of(&id)?;
                if !append {
                    self.given.remove(&artifact.id);
                }
                self.give(artifact, 0, &mut news)?;
            }
        }
        Ok(news)
    }

    fn is_of(&mut self, id: &str) -> Result<(), AnswerError> {
        match &self.id {
            Some(known) if known == id => Ok(()),
            Some(_) => Err(AnswerError::ForeignTask),
            None => {
                self.id = Some(id.to_owned());
                Ok(())
            }
        }
    }

    fn give(
        &mut self,
        artifact: Artifact,
        given: usize,
        news: &mut Vec<News>,
    ) -> Result<(), AnswerError> {
        if !self.given.contains_key(&artifact.id) {
            if self.given.len() >= MOST_ARTIFACTS {
                return Err(AnswerError::TooMuch("1024 results"));
            }
            // The id is kept, too.
            self.count(artifact.id.len())?;
        }
        let fresh = artifact.parts.into_iter().skip(given);
        let mut count = 0;
        for part in fresh {
            self.count(part.bytes())?;
            count += 1;
            self.begin(news);
            news.push(News::Part(part));
        }
        *self.given.entry(artifact.id).or_default() += count;
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), AnswerError> {
        self.bytes += bytes;
        if self.bytes > MOST_BYTES {
            return Err(AnswerError::TooMuch("64 MiB of results"));
        }
        Ok(())
    }

    fn begin(&mut self, news: &mut Vec<News>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            news.push(News::Begun);
        }
    }

    fn enter(&mut self, status: Status, news: &mut Vec<News>) {
        let text = status.text();
        let end = match status.course {
            Course::Submitted => return,
            Course::Working => {
                self.begin(news);
                if !text.is_empty() {
                    news.push(News::Progress(text));
                }
                return;
            }
            Course::InputRequired => {
                self.begin(news);
                self.asked = Some((status.stamp, text.clone()));
                news.push(News::Asked(text));
                return;
            }
            Course::AuthRequired => End::AuthRequired(text),
            Course::Completed => End::Completed(status.parts),
            Course::Failed => End::Failed(text),
            Course::Canceled => End::Canceled(text),
            Course::Rejected => End::Rejected(text),
        };
        self.has_ended = true;
        news.push(News::Ended(end));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status(course: Course, text: &str) -> Status {
        let parts = Some(text).filter(|it| !it.is_empty());
        Status {
            course,
            parts: parts
                .map(|it| Part::Text(it.to_owned()))
                .into_iter()
                .collect(),
            stamp: String::new(),
        }
    }

    fn artifact(id: &str, texts: &[&str]) -> Artifact {
        Artifact {
            id: id.to_owned(),
            parts: texts
                .iter()
                .map(|it| Part::Text((*it).to_owned()))
                .collect(),
        }
    }

    fn task(course: Course, artifacts: Vec<Artifact>) -> Told {
        Told::Task {
            id: "t".to_owned(),
            context: "c".to_owned(),
            status: status(course, ""),
            artifacts,
        }
    }

    fn more(id: &str, text: &str, append: bool) -> Told {
        Told::Artifact {
            id: id.to_owned(),
            artifact: artifact("a", &[text]),
            append,
        }
    }

    fn texts(news: &[News]) -> Vec<&str> {
        let parts = news.iter().filter_map(|news| match news {
            News::Part(Part::Text(text)) => Some(text.as_str()),
            _ => None,
        });
        parts.collect()
    }

    #[test]
    fn after_a_break_only_what_is_new_is_given() {
        let mut following = Following::default();
        assert_eq!(following.take(task(Course::Submitted, vec![])), Ok(vec![]));
        let first = following.take(more("t", "1", false)).unwrap();
        assert_eq!(first[0], News::Begun);
        assert_eq!(texts(&first), ["1"]);
        // The stream breaks, and the task tells what was missed.
        let whole = vec![artifact("a", &["1", "2", "3"]), artifact("b", &["x"])];
        let rest = following.take(task(Course::Working, whole)).unwrap();
        assert_eq!(texts(&rest), ["2", "3", "x"]);
        assert_eq!(texts(&following.take(more("t", "4", true)).unwrap()), ["4"]);
        let ended = following.take(task(Course::Completed, vec![])).unwrap();
        assert_eq!(ended, [News::Ended(End::Completed(vec![]))]);
        assert_eq!(following.take(more("t", "5", true)), Ok(vec![]));
        assert!(following.has_ended());
    }

    #[test]
    fn each_state_says_what_it_means() {
        let text = || "why".to_owned();
        for (course, expected) in [
            (Course::Working, News::Progress(text())),
            (Course::InputRequired, News::Asked(text())),
            (Course::Failed, News::Ended(End::Failed(text()))),
            (Course::Rejected, News::Ended(End::Rejected(text()))),
            (Course::Canceled, News::Ended(End::Canceled(text()))),
            (Course::AuthRequired, News::Ended(End::AuthRequired(text()))),
        ] {
            let mut following = Following::default();
            let told = Told::Status {
                id: "t".to_owned(),
                status: status(course, "why"),
            };
            assert_eq!(following.take(told).unwrap().last(), Some(&expected));
        }
    }

    #[test]
    fn a_question_is_put_once() {
        let mut following = Following::default();
        let first = following.take(task(Course::InputRequired, vec![])).unwrap();
        assert_eq!(first, [News::Begun, News::Asked(String::new())]);
        assert_eq!(
            following.take(task(Course::InputRequired, vec![])),
            Ok(vec![])
        );
        let mut again = task(Course::InputRequired, vec![]);
        if let Told::Task { status, .. } = &mut again {
            status.stamp = "later".to_owned();
        }
        assert_eq!(following.take(again).unwrap(), [News::Asked(String::new())]);
    }

    #[test]
    fn a_result_without_end_is_given_up() {
        let mut following = Following::default();
        let long = "x".repeat(1 << 20);
        let failed = (0..1_000).find_map(|_| following.take(more("t", &long, true)).err());
        assert_eq!(failed, Some(AnswerError::TooMuch("64 MiB of results")));
        let mut following = Following::default();
        let many = (0..2_000).map(|number| artifact(&number.to_string(), &[]));
        let failed = following.take(task(Course::Working, many.collect()));
        assert_eq!(failed, Err(AnswerError::TooMuch("1024 results")));
        // Results without parts have names.
        let mut following = Following::default();
        let failed = (0..100).find_map(|number| {
            let id = format!("{number}{long}");
            let told = task(Course::Working, vec![artifact(&id, &[])]);
            following.take(told).err()
        });
        assert_eq!(failed, Some(AnswerError::TooMuch("64 MiB of results")));
    }

    proptest! {
        #[test]
        fn another_task_is_never_told_of(ids in prop::collection::vec("[tu]", 1..20)) {
            let mut following = Following::default();
            for id in &ids {
                let taken = following.take(more(id, "x", true));
                if *id == ids[0] {
                    let news = taken.unwrap();
                    prop_assert_eq!(texts(&news), ["x"]);
                } else {
                    prop_assert_eq!(taken, Err(AnswerError::ForeignTask));
                }
            }
            prop_assert_eq!(following.take(Told::Message(vec![])), Err(AnswerError::ForeignTask));
        }
    }
}
