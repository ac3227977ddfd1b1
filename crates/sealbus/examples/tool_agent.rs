//! An agent with a tool that answers word by word, as a language model does, and an agent that reads along and leaves
//! when it has read enough. `examples/tool_agent.py` is the same in Python; either one's reader reads from the other
//! one's model.
//!
//! The words come from a Markov chain over a few sentences, so neither a network nor a model is needed. Run it with
//! `cargo run --example tool_agent`.

#![warn(clippy::pedantic)]

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use sealbus::body::Json;
use sealbus::directory::Template;
use sealbus::tool::{Parts, Tool};
use sealbus::{Agent, AgentResult, Context, Refuse, RunError, Voice, agent, run};
use serde::{Deserialize, Serialize};

const SENTENCES: &str = "agents talk about what they know . agents know who is talking . who is talking knows what agents want . \
     what they want is a message that arrives . a message that arrives once is worth two that may arrive .";

#[derive(Serialize, Deserialize, JsonSchema)]
struct Prompt {
    text: String,
    #[serde(default = "twenty")]
    words: u32,
}

fn twenty() -> u32 {
    20
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Chunk {
    word: String,
}

/// The words of the sentences, in their order.
struct Model {
    words: Arc<[&'static str]>,
}

impl Agent for Model {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let (words, voice) = (self.words.clone(), context.voice());
        let complete = Tool::streaming("complete", move |Json(prompt), parts| {
            complete(words.clone(), voice.clone(), prompt, parts)
        });
        context.offer(
            complete
                .about("Goes on with a text, word by word.")
                .concurrency(8),
        );
        context.df().register(context.services()).await?;
        Ok(())
    }
}

async fn complete(
    words: Arc<[&'static str]>,
    voice: Voice,
    prompt: Prompt,
    parts: Parts<Json<Chunk>>,
) -> AgentResult {
    let text = prompt.text.to_lowercase();
    let mut word = text.split_whitespace().next_back().unwrap_or_default();
    for number in 1..=prompt.words {
        let following: Vec<&str> = words
            .windows(2)
            .filter(|pair| pair[0] == word)
            .map(|pair| pair[1])
            .collect();
        if following.is_empty() && number == 1 {
            return Err(Refuse::new(format!("I do not know the word '{word}'")).into());
        }
        // Any choice will do, as long as it is not always the same.
        let chosen = following.get(number as usize % following.len().max(1));
        word = chosen.copied().unwrap_or(".");
        voice.clock().sleep(Duration::from_millis(1)).await;
        parts
            .progress(f64::from(number) / f64::from(prompt.words), "")
            .await?;
        let word = word.to_owned();
        parts.give(&Json(Chunk { word })).await?;
    }
    Ok(())
}

struct Reader;

impl Agent for Reader {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let model = || Template::from("complete");
        let patience = Duration::from_secs(10);
        let text = "Agents".to_owned();
        let prompt = Json(Prompt { text, words: 20 });
        let mut answer = context
            .ask(model(), &prompt)?
            .timeout(patience)
            .stream()
            .await?;
        let mut read = Vec::new();
        while let Some(Json(Chunk { word })) = answer.next().await? {
            read.push(word);
        }
        println!("{}", read.join(" "));
        println!("To the end: {:?}", answer.progress());

        let text = "a message".to_owned();
        let prompt = Json(Prompt {
            text,
            words: 1_000_000,
        });
        let mut answer = context
            .ask(model(), &prompt)?
            .timeout(patience)
            .stream()
            .await?;
        read.clear();
        while let Some(Json(Chunk { word })) = answer.next().await?
            && word != "."
        {
            read.push(word);
        }
        drop(answer);
        println!("{}", read.join(" "));
        println!("One sentence of a million words was enough.");
        context.stop_all();
        Ok(())
    }
}

fn main() -> Result<(), RunError> {
    let words = SENTENCES.split_whitespace().collect();
    run([agent("model", Model { words }), agent("reader", Reader)])
}
